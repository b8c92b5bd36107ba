"""Where nodes listen, and the options of their sockets, which come from the plan and not from the machine."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.best_effort import type_of_service
from testbed.errors import CapabilityError, RunFailed
from testbed.plan.model import Plan
from testbed.settings.run import Transport

Address = tuple[str, int]

_TCP_NOTSENT_LOWAT = 25  # linux/tcp.h; Python names it from 3.13 on
_IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h: the port is chosen at connect, so that source ports do not run out
_BACKLOG = 256
_TCP_INFO_BYTES = 256
_UNKNOWN = 2**32 - 1
# Probes start after 15 s of silence and come every 5 s; TCP_USER_TIMEOUT decides when the connection is lost.
_KEEPALIVE_IDLE_S = 15
_KEEPALIVE_INTERVAL_S = 5


def listen(address: Address) -> socket.socket:
    """Return a listening, non-blocking socket; with port 0, the kernel chooses. Raise ``RunFailed`` if that fails."""
    return reserve(address, _BACKLOG)


def reserve(address: Address, backlog: int = 0) -> socket.socket:
    """Return a bound, non-blocking socket. Without a ``backlog`` it does not listen, so that another can.

    Raises as ``listen`` does.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        if backlog:
            sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise RunFailed(f"cannot listen on {address_text(address)}: {error.strerror}") from error
    return sock


class Endpoints:
    """Addresses and listening sockets of a plan's nodes.

    ``in_namespaces``: the addresses are those of the plan, and each node binds its own in its network namespace.
    Otherwise the kernel chooses ports of 127.0.0.1. The parent binds these before it forks, as another process could
    take a port that is not bound. Until ``release``, a second socket that does not listen keeps each port bound: a lost
    node may return to its port, and while it is away the kernel refuses connections to it.
    """

    source = ""  # IP address that nodes connect from; empty: where they are reached
    beside: frozenset[str] | None = None  # the nodes of this machine; None: all

    def __init__(self, plan: Plan, *, in_namespaces: bool) -> None:
        self._bind({} if in_namespaces else {node.name: ("127.0.0.1", 0) for node in plan.nodes})
        self.addresses = {node.name: (node.address or "", node.port) for node in plan.nodes} | self._bound

    def _bind(self, wanted: dict[str, Address]) -> None:
        """Bind an address for each node, and listen there."""
        self._reserved = {node: reserve(address) for node, address in wanted.items()}
        self._bound: dict[str, Address] = {node: sock.getsockname() for node, sock in self._reserved.items()}
        self._listeners = {node: listen(address) for node, address in self._bound.items()}

    def open(self, nodes: Iterable[str]) -> None:
        """Listen again for nodes that are started again."""
        for node in nodes:
            if node in self._bound and node not in self._listeners:
                self._listeners[node] = listen(self._bound[node])

    def listener(self, node: str) -> socket.socket:
        """Return the listening socket of a node, in its own process. Raise ``RunFailed`` if the address is taken."""
        return self._listeners[node] if node in self._listeners else listen(self.addresses[node])

    def others(self, node: str) -> list[int]:
        """Return the descriptors that the process of a node does not need: other nodes' sockets, and reserving ones."""
        others = [sock for name, sock in self._listeners.items() if name != node]
        return [sock.fileno() for sock in (*others, *self._reserved.values())]

    def close(self) -> None:
        """Close this process' copies of the listening sockets."""
        _close(self._listeners)

    def release(self) -> None:
        """Release the ports at the end of the run."""
        self.close()
        _close(self._reserved)


def _close(sockets: dict[str, socket.socket]) -> None:
    for sock in sockets.values():
        sock.close()
    sockets.clear()


class MachineEndpoints(Endpoints):
    """Endpoints of the nodes of one of several machines. ``meet`` takes the addresses of all nodes.

    ``bind``: the IP address at which nodes of this machine listen; others may reach them at another address.
    ``ports``: the port of each node of this machine; for 0, the kernel chooses.
    """

    def __init__(self, bind: str, ports: Mapping[str, int]) -> None:
        self._bind({node: (bind, port) for node, port in ports.items()})
        self.addresses = {}
        self.source = bind
        self.beside = frozenset(ports)

    @property
    def ports(self) -> dict[str, int]:
        return {node: port for node, (_, port) in self._bound.items()}

    def meet(self, addresses: Mapping[str, Address]) -> None:
        """Take the addresses at which this machine reaches the nodes of the run."""
        self.addresses.update(addresses)


def new_socket(source: str) -> socket.socket:
    """Return a non-blocking socket that will connect from the IP address ``source``."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))
    return sock


def configure(sock: socket.socket, plan: Plan) -> None:
    """Set a TCP socket's options before it is connected. Sockets accepted by a listening socket inherit its options.

    TCP_NODELAY: frames are complete messages and must not wait for more data. TCP_NOTSENT_LOWAT: the socket is writable
    only while fewer bytes than this wait unsent in the kernel. The other frames wait in the node's own queue, where
    urgent frames can overtake them. TCP_USER_TIMEOUT: how long sent data may stay unacknowledged.

    Raises ``CapabilityError`` if the kernel lacks the congestion control or allows smaller buffers than planned.
    """
    transport = plan.transport
    timeouts = plan.timeouts
    _set_congestion_control(sock, transport.congestion_control)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(0, transport.best_effort_channels))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, transport.unsent_limit_bytes)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeouts.tcp_user_timeout_s * 1000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
    if plan.facilities.is_unshaped:  # for emulated nodes, settings of the namespace limit buffers: emulation.settings
        _limit_buffers(sock, transport)


def _limit_buffers(sock: socket.socket, transport: Transport) -> None:
    for name, option, limit, wanted in (
        ("send_buffer", socket.SO_SNDBUF, "wmem_max", transport.send_buffer_bytes),
        ("receive_buffer", socket.SO_RCVBUF, "rmem_max", transport.receive_buffer_bytes),
    ):
        if wanted is None:
            continue
        sock.setsockopt(socket.SOL_SOCKET, option, wanted)
        got = sock.getsockopt(socket.SOL_SOCKET, option) // 2  # socket(7): Linux doubles the value
        if got < wanted:
            raise CapabilityError(
                f"transport.{name}: this kernel allows {got} bytes, the scenario says {wanted}; "
                f"cure: `sysctl net.core.{limit}={wanted}` as root, or a smaller value"
            )


def _set_congestion_control(sock: socket.socket, name: str) -> None:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        raise CapabilityError(
            f"transport.congestion_control: this kernel does not allow {name!r} ({error.strerror}); "
            f"available: {', '.join(available)}; cure: `modprobe tcp_{name}` as root, or choose another"
        ) from error


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """The kernel's data about a connection: smoothed and minimum round-trip time, packets sent, those sent again, …"""

    rtt_s: float
    min_rtt_s: float
    packets: int
    repeated: int
    rate_bps: float  # of the latest delivery
    received_bytes: int  # payload; the end of the stream counts as one more byte

    @classmethod
    def of(cls, sock: socket.socket) -> TcpInfo:
        """Return the present data about a socket (``struct tcp_info``, linux/tcp.h)."""
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        rtt_us, repeated, min_rtt_us, packets = (struct.unpack_from("=I", info, at)[0] for at in (68, 100, 148, 156))
        received, rate = (struct.unpack_from("=Q", info, at)[0] for at in (128, 160))
        known_us = 0 if min_rtt_us == _UNKNOWN else min_rtt_us
        return cls(rtt_us / 1e6, known_us / 1e6, packets, repeated, 8.0 * rate, received)

    @property
    def loss(self) -> float:
        """Packets sent again, because they were lost or thought to be lost, as a share of the packets sent."""
        return self.repeated / self.packets if self.packets else 0.0


def address_text(address: Address) -> str:
    """``10.0.2.3:5000``"""
    return f"{address[0]}:{address[1]}"
