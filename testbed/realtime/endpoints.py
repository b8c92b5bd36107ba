"""Where the nodes of a run listen: their addresses, and the sockets that the parent opens for them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from testbed.plan.model import Plan
from testbed.realtime.sockets import Address, listen


class Endpoints:
    """Addresses and listening sockets of a plan's nodes.

    ``in_namespaces``: addresses are the plan's, and each node binds its own after it has entered its namespace.
    Otherwise all are ports of 127.0.0.1 that the kernel chooses. The parent binds those before it forks: a port that
    were only looked up could be taken by another process in between.
    """

    source = ""  # IP address that nodes connect from; empty: where they are reached
    beside: frozenset[str] | None = None  # the nodes of this machine; None: all

    def __init__(self, plan: Plan, *, in_namespaces: bool) -> None:
        self._in_namespaces = in_namespaces
        self._listeners: dict[str, socket.socket] = {}
        self.addresses: dict[str, Address] = {}
        for node in plan.nodes:
            if not in_namespaces:
                self._listeners[node.name] = listen(("127.0.0.1", 0))
            self.addresses[node.name] = (node.address or "", node.port) if in_namespaces else self._bound(node.name)

    def _bound(self, node: str) -> Address:
        address: Address = self._listeners[node].getsockname()
        return address

    def open(self, nodes: Iterable[str]) -> None:
        """Listen again for nodes that are started again."""
        for node in nodes:
            if not self._in_namespaces and node not in self._listeners:
                self._listeners[node] = listen(self.addresses[node])

    def listener(self, node: str) -> socket.socket:
        """The listening socket of a node; called in its own process. Raise ``RunFailed`` if the address is taken."""
        return self._listeners[node] if node in self._listeners else listen(self.addresses[node])

    def others(self, node: str) -> list[int]:
        """Descriptors of the other nodes' sockets."""
        return [sock.fileno() for name, sock in self._listeners.items() if name != node]

    def close(self) -> None:
        """Close this process' copies."""
        for sock in self._listeners.values():
            sock.close()
        self._listeners.clear()


class MachineEndpoints(Endpoints):
    """Those of the nodes of one machine of several. The others are reached where ``meet`` says.

    ``ports``: of each node here; 0: the kernel chooses. A node may be reached at other addresses than it is bound to.
    """

    def __init__(self, bind: str, ports: Mapping[str, int]) -> None:
        self._in_namespaces = False
        self._listeners = {node: listen((bind, port)) for node, port in ports.items()}
        self._own = {node: self._bound(node) for node in ports}
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
