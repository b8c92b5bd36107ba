"""The part of an emulated network that is on one of several machines, joined with the others by VXLAN. Pure.

Data centres and routers are whole on one machine. A WAN cable whose ends are on different machines becomes a tunnel,
with a device at each end and a number (VNI) of its own. A direction of it has its rate and queue where it is sent, and
its delay and losses where it arrives, as on one machine; the delay that the machines' own network (the underlay) has is
subtracted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from emulation.layout import WIRES, Cable, EmulatedWanLink, Layout, SwitchPort, Tunnel

PORT = 4789  # of UDP, which IANA has assigned to VXLAN
OVERHEAD_BYTES = 50  # of a packet in a tunnel: its Ethernet header (14), VXLAN (8), UDP (8), IPv4 (20)
FULL_MTU_BYTES = 1500
_VNIS = (1 << 24) - 1  # 1 and up


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePart:
    """What one of several machines emulates.

    machine     its name
    machines    the machine of every data centre and router
    addresses   IPv4 address of each machine in the underlay
    delays_s    one-way delay of the underlay from each other machine with which it has a link
    first_vni   of the run: tunnel n has the number n after it
    mtu_bytes   of the emulated network
    outside     path of the network namespace that has the underlay
    """

    machine: str
    machines: Mapping[str, str]
    addresses: Mapping[str, str]
    delays_s: Mapping[str, float]
    first_vni: int
    mtu_bytes: int = FULL_MTU_BYTES
    outside: str = ""

    def has(self, vertex: str) -> bool:
        """Return whether a data centre, one of its nodes or its switch, or a router is on this machine."""
        return self.machines[vertex.split("/", maxsplit=1)[0]] == self.machine

    def delay_from_s(self, vertex: str) -> float:
        """Return the one-way delay of the underlay from the machine of ``vertex``; 0 if that is this one."""
        return 0.0 if self.has(vertex) else self.delays_s[self.machines[vertex]]


def divide(layout: Layout, part: MachinePart) -> Layout:
    """Return the part of a layout that is on one machine."""
    cables = tuple(cable for cable in layout.cables if all(part.has(vertex) for vertex in _owners(cable)))
    tunnels = _tunnels(layout.wan, part)
    ports = {end for cable in cables for end in (cable.a, cable.b)} | {tunnel.port for tunnel in tunnels}
    return replace(
        layout,
        hosts={name: port for name, port in layout.hosts.items() if part.has(name)},
        gateways={name: port for name, port in layout.gateways.items() if part.has(name)},
        routers=tuple(router for router in layout.routers if part.has(router)),
        switches=tuple(switch for switch in layout.switches if switch == WIRES or part.has(switch)),
        cables=cables,
        bridges=tuple(
            bridge for bridge in layout.bridges if all(SwitchPort(bridge[0], port) in ports for port in bridge[2])
        ),
        routes=tuple(route for route in layout.routes if part.has(route.vertex)),
        wan=tuple(link for link in layout.wan if part.has(link.egress.vertex) or part.has(link.ingress.vertex)),
        lan=tuple(lan for lan in layout.lan if part.has(lan.port.vertex)),
        lan_delays=tuple(delay for delay in layout.lan_delays if part.has(delay.port.vertex)),
        tunnels=tunnels,
    )


def _owners(cable: Cable) -> set[str]:
    """Return the vertices at a cable's ends; switches in cables are where the other end is."""
    return {end.vertex for end in (cable.a, cable.b) if end.vertex != WIRES}


def _tunnels(links: tuple[EmulatedWanLink, ...], part: MachinePart) -> tuple[Tunnel, ...]:
    """Return a tunnel for each pair of links that crosses to another machine. Pairs follow each other in a layout."""
    found = []
    for number, (forward, backward) in enumerate(zip(links[::2], links[1::2], strict=True)):
        for sent in (forward, backward):
            if part.has(sent.egress.vertex) and not part.has(sent.ingress.vertex):
                found.append(Tunnel(sent.wire or sent.egress, number, sent.ingress.vertex))
    return tuple(found)


def tunnel_lines(layout: Layout, part: MachinePart, pids: Mapping[str, int]) -> list[str]:
    """Return ``ip -batch`` lines that make all tunnels, in their namespaces; to be run where the underlay is.

    A device sends and receives in the namespace in which it was made, and ends with the one that it is in.
    """
    mine = part.addresses[part.machine]
    return [
        f"link add name {tunnel.port.interface} netns {pids[tunnel.port.vertex]} type vxlan"
        f" id {vni(part.first_vni, tunnel.number)} local {mine} remote {part.addresses[part.machines[tunnel.target]]}"
        f" dstport {PORT} nolearning"
        for tunnel in layout.tunnels
    ]


def vni(first: int, number: int) -> int:
    """Return the VXLAN network identifier of a tunnel: 24 bits, and not 0."""
    return 1 + (first + number) % _VNIS


def mtu_within(underlay_bytes: int) -> int:
    """Return the MTU of an emulated network whose tunnels cross an underlay with that MTU."""
    return min(FULL_MTU_BYTES, underlay_bytes - OVERHEAD_BYTES)
