"""What goes from one virtual world to another, and what a world keeps about those that it sends to."""

from __future__ import annotations

from typing import Protocol

import msgspec

from testbed.messages import Message
from testbed.simulation.best_effort import BestEffort
from testbed.simulation.clock import VirtualFuture
from testbed.simulation.host import Thread
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.worker_group import FlowGroups


class Addressee(Protocol):
    """What of a world those see that send to it. ``copies``: so many like nodes it stands for."""

    copies: int

    def deliver(self, letter: Envelope, copies: int = 1) -> None: ...


class Envelope(msgspec.Struct, eq=False):
    """A message on its way, with its size on the wire.

    lanes     that have still to deliver their part of it
    carried   by the cores of a shared machine
    arrived   by the network
    """

    message: Message
    payload_bytes: int
    header_bytes: int
    target: Addressee
    tier: str
    lanes: int = 1
    carried: bool = True
    arrived: bool = False


class Peer:
    """What a node keeps about another that it sends to."""

    __slots__ = ("best_effort", "carrier", "connection", "held", "lanes", "tier", "world")

    def __init__(
        self, connection: TcpConnection, world: Addressee, tier: str, best_effort: BestEffort | None,
        lanes: FlowGroups | None = None,
    ) -> None:  # fmt: skip
        self.connection, self.world, self.tier, self.best_effort = connection, world, tier, best_effort
        self.lanes = lanes  # of a folded sender; ``connection`` is the first of them
        self.held: list[VirtualFuture[None]] = []  # senders that wait for room
        self.carrier: Thread | None = None  # the machine's work on what crosses the WAN to there


def carried(letter: Envelope) -> None:
    """The cores of a shared machine have done what moving it takes."""
    letter.carried = True
    if letter.arrived:
        letter.target.deliver(letter)
