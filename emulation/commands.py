"""The commands that create a layout: lines for ``ip -batch`` and rules for ``iptables-restore``. Pure."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping

from emulation.layout import WAN_PREFIX_BITS, Layout, Route, SwitchPort
from emulation.shaping.install import queue_number

_FIRST_TABLE = 1000  # the kernel's own are 253 to 255
_FIRST_INDEX = 100


def cable_lines(layout: Layout, pids: Mapping[str, int]) -> list[str]:
    """Return lines that create every veth pair with its ends in their namespaces, so that none is in the caller's.

    All ends get different interface indices: with equal ones, Linux takes up to a second to detect the carrier.
    """
    index = itertools.count(_FIRST_INDEX)
    ends = [
        [f"name {end.interface} index {next(index)} netns {pids[end.vertex]}" for end in (cable.a, cable.b)]
        for cable in layout.cables
    ]
    return [f"link add {a} type veth peer {b}" for a, b in ends]


def address_lines(layout: Layout, vertex: str, route_options: str) -> list[str]:
    """Return the lines of one namespace: loopback, bridges, addresses, interfaces, routes.

    ``route_options``: TCP options of every route, for those that no sysctl of a namespace can set.
    """
    suffix = f" {route_options}" if route_options else ""
    lines = ["link set dev lo up"]
    for at, bridge, ports in layout.bridges:
        if at == vertex:
            lines += [f"link add name {bridge} type bridge stp_state 0 mcast_snooping 0", f"link set dev {bridge} up"]
            lines += [f"link set dev {port} master {bridge}" for port in ports]
    for port in layout.ports_of(vertex):
        lines += _port_lines(port, suffix)
    lines += [
        line
        for number, route in enumerate(route for route in layout.routes if route.vertex == vertex)
        for line in _route_lines(route, _FIRST_TABLE + number, suffix)
    ]
    return lines


def _port_lines(port: SwitchPort, suffix: str) -> list[str]:
    if port.address is None:
        return [f"link set dev {port.interface} up"]
    subnet = ipaddress.ip_interface(port.address).network
    lines = [
        f"addr add {port.address} dev {port.interface} noprefixroute",
        f"link set dev {port.interface} up",
        f"route add {subnet} dev {port.interface} src {port.ip}{suffix}",
    ]
    if subnet.prefixlen != WAN_PREFIX_BITS:
        return lines
    # The ends of a WAN link know each other: netem would delay and lose ARP requests, the delay line would not, and a
    # lost one holds up a link for a second.
    (peer,) = (host for host in subnet.hosts() if str(host) != port.ip)
    return [
        f"link set dev {port.interface} address {_hardware_address(port.ip)}",
        *lines,
        f"neigh add {peer} lladdr {_hardware_address(str(peer))} dev {port.interface} nud permanent",
    ]


def _hardware_address(ip: str) -> str:
    """Return a locally administered MAC address (IEEE 802) made of an IPv4 address."""
    return ":".join(["02", "00", *(f"{byte:02x}" for byte in ipaddress.ip_address(ip).packed)])


def _route_lines(route: Route, table: int, suffix: str) -> list[str]:
    if route.source is None:
        return [f"route add {route.subnet} via {route.via}{suffix}"]
    return [
        f"route add {route.subnet} via {route.via} table {table}{suffix}",
        f"rule add from {route.source} to {route.subnet} lookup {table}",
    ]


def delay_rules(layout: Layout, vertex: str) -> str:
    """Return ``iptables-restore`` rules that queue packets for the delay line; empty if no port of ``vertex`` needs it.

    They hold for packets that arrive on WAN ports, and on the port of a LAN that has a delay.

    They lack ``--queue-bypass``: without the delay line a link must break, and not lose its delay.
    """
    ports = [link.ingress.interface for link in layout.wan if link.ingress.vertex == vertex]
    ports += [delay.port.interface for delay in layout.lan_delays if delay.port.vertex == vertex]
    if not ports:
        return ""
    rules = [f"-A PREROUTING -i {port} -j NFQUEUE --queue-num {queue_number(port)}" for port in ports]
    return "\n".join(["*raw", ":PREROUTING ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", *rules, "COMMIT", ""])
