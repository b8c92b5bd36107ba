"""What a node needs to start, and the bounds on its connections."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from testbed.plan.model import Plan
from testbed.realtime.auth import ASIDE, DATA, Credentials
from testbed.realtime.processor import Tokens
from testbed.realtime.shared_memory import has_shared_memory, shares_memory
from testbed.realtime.sockets import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds on memory and on strangers.

    Attributes:
        max_body_bytes: Of one message.
        queue_bytes: Queued for one peer before ``send`` waits.
        inbox_bytes: Received and not yet taken by the role, before this node stops reading from its sockets.
        handshakes: Under way at one time.
    """

    max_body_bytes: int = 1 << 30
    queue_bytes: int = 64 << 20
    inbox_bytes: int = 1 << 30
    handshakes: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """What a node needs to start.

    Attributes:
        plan: The run.
        name: The node.
        addresses: At which each node of the run is reached, this one included.
        listener: The node's listening socket.
        credentials: Of the run.
        epoch_ns: The run's start on CLOCK_MONOTONIC.
        tokens: Shared with all nodes of the machine.
        limits: Bounds on connections.
        since_s: When training began in seconds of the run, if it did before this node was started.
        source: IP address that this node connects from, and receives datagrams at; default: where it is reached.
        beside: The nodes of this machine, itself included; default: all.
        absent: The nodes that did not run when the run began.
    """

    plan: Plan
    name: str
    addresses: dict[str, Address]
    listener: socket.socket
    credentials: Credentials
    epoch_ns: int
    tokens: Tokens
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    since_s: float | None = None
    source: str = ""
    beside: frozenset[str] | None = None
    absent: frozenset[str] = frozenset()

    @property
    def bound(self) -> Address:
        """The node's own address and port on this machine."""
        address, port = self.addresses[self.name]
        return self.source or address, port

    def shares_memory(self, peer: str, purpose: str) -> bool:
        """Return whether a connection goes through memory: for what is sent aside, wherever that can be."""
        if self.beside is not None and peer not in self.beside:
            return False
        if purpose == ASIDE:
            return has_shared_memory(self.plan)
        return purpose == DATA and shares_memory(self.plan, self.name, peer)
