"""Where the nodes of a run listen: their addresses, and the sockets that the parent opens for them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from testbed.plan.model import Plan
from testbed.realtime.sockets import Address, listen, reserve


class Endpoints:
    """Addresses and listening sockets of a plan's nodes.

    ``in_namespaces``: addresses are the plan's, and each node binds its own after it has entered its namespace.
    Otherwise all are ports of 127.0.0.1 that the kernel chooses. The parent binds those before it forks: a port that
    were only looked up could be taken by another process in between. It keeps them until ``release``, for nodes that
    are away: its own sockets on them do not listen, so that who calls such a node is refused.
    """

    source = ""  # IP address that nodes connect from; empty: where they are reached
    beside: frozenset[str] | None = None  # the nodes of this machine; None: all

    def __init__(self, plan: Plan, *, in_namespaces: bool) -> None:
        self._in_namespaces = in_namespaces
        self._listeners: dict[str, socket.socket] = {}
        self._reserved: dict[str, socket.socket] = {}
        self.addresses: dict[str, Address] = {}
        for node in plan.nodes:
            address = (node.address or "", node.port)
            self.addresses[node.name] = address if in_namespaces else self._reserve(node.name, ("127.0.0.1", 0))

    def _reserve(self, node: str, address: Address) -> Address:
        """Take an address for a node, and listen there; return it."""
        self._reserved[node] = sock = reserve(address)
        taken: Address = sock.getsockname()
        self._listeners[node] = listen(taken)
        return taken

    def open(self, nodes: Iterable[str]) -> None:
        """Listen again for nodes that are started again."""
        for node in nodes:
            if not self._in_namespaces and node not in self._listeners:
                self._listeners[node] = listen(self.addresses[node])

    def listener(self, node: str) -> socket.socket:
        """The listening socket of a node; called in its own process. Raise ``RunFailed`` if the address is taken."""
        return self._listeners[node] if node in self._listeners else listen(self.addresses[node])

    def others(self, node: str) -> list[int]:
        """Descriptors that the process of a node does not need: the other nodes' sockets, and those that reserve."""
        others = [sock for name, sock in self._listeners.items() if name != node]
        return [sock.fileno() for sock in (*others, *self._reserved.values())]

    def close(self) -> None:
        """Close this process' copies of the listening sockets."""
        _close(self._listeners)

    def release(self) -> None:
        """Let others have the ports; the run has ended."""
        self.close()
        _close(self._reserved)


def _close(sockets: dict[str, socket.socket]) -> None:
    for sock in sockets.values():
        sock.close()
    sockets.clear()


class MachineEndpoints(Endpoints):
    """Those of the nodes of one machine of several. The others are reached where ``meet`` says.

    ``ports``: of each node here; 0: the kernel chooses. A node may be reached at other addresses than it is bound to.
    """

    def __init__(self, bind: str, ports: Mapping[str, int]) -> None:
        self._in_namespaces = False
        self._listeners, self._reserved = {}, {}
        self._own = {node: self._reserve(node, (bind, port)) for node, port in ports.items()}
        self.addresses = {}
        self.source, self.beside = bind, frozenset(ports)

    @property
    def ports(self) -> dict[str, int]:
        """The port of each node here."""
        return {node: port for node, (_, port) in self._own.items()}

    def meet(self, addresses: Mapping[str, Address]) -> None:
        """Take the addresses at which this machine reaches all nodes of the run."""
        self.addresses.update(addresses)

    def open(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if node not in self._listeners:
                self._listeners[node] = listen(self._own[node])
