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
        max_body_bytes: Most bytes of tensors in one message.
        queue_bytes: Bytes queued for one peer above which ``send`` waits.
        inbox_bytes: Payload bytes in the inbox above which this node stops reading from its sockets.
        handshakes: Most handshakes of callers at the same time.
    """

    max_body_bytes: int = 1 << 30
    queue_bytes: int = 64 << 20
    inbox_bytes: int = 1 << 30
    handshakes: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """What a node needs to start.

    Attributes:
        plan: The plan of the run.
        name: The node's name.
        addresses: The address of each node of the run, this one included.
        listener: The node's listening socket.
        credentials: The credentials of the run.
        epoch_ns: The run's start on CLOCK_MONOTONIC.
        tokens: The tokens of cores or of a GPU, shared with other nodes of the machine.
        limits: Bounds on connections.
        since_s: When training began, in seconds of the run, if it began before this node was started.
        source: IP address from which this node connects and at which it receives datagrams; default: its address in
            ``addresses``.
        beside: The nodes of this machine, this one included; default: all nodes.
        absent: The nodes that were not started with the run.
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
        """The address and port that the node binds on this machine."""
        address, port = self.addresses[self.name]
        return self.source or address, port

    def shares_memory(self, peer: str, purpose: str) -> bool:
        """Return whether a connection to ``peer`` goes through shared memory.

        A connection for messages sent aside does so wherever that is possible, a data connection only where no emulated
        link lies between the nodes.
        """
        if self.beside is not None and peer not in self.beside:
            return False
        if purpose == ASIDE:
            return has_shared_memory(self.plan)
        return purpose == DATA and shares_memory(self.plan, self.name, peer)
