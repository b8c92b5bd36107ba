"""Where the nodes of a run listen: their addresses, and the sockets that the parent opens for them."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from testbed.plan.model import Plan
from testbed.realtime.sockets import Address, listen


class Endpoints:
    """Addresses and listening sockets of a plan's nodes.

    ``in_namespaces``: addresses are the plan's, and each node binds its own after it has entered its namespace.
    Otherwise all are ports of 127.0.0.1 that the kernel chooses. The parent binds those before it forks: a port that
    were only looked up could be taken by another process in between.
    """

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
