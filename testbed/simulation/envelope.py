"""A message in flight between two simulated nodes."""

from __future__ import annotations

from typing import Protocol

import msgspec

from testbed.messages import Message


class Receiver(Protocol):
    """Where envelopes are delivered: ``testbed.simulation.inbox.SimulatedInbox``."""

    def deliver(self, envelope: Envelope, copies: int = 1) -> None: ...


class Envelope(msgspec.Struct, eq=False):
    """A message with its sizes on the wire. Sizes count the messages of all nodes that sender and target represent.

    folded  whether its sender is a folded node, whose workers' parts arrive one by one
    parts   number of parts that have yet to arrive: one for each flow group of a folded sender
    """

    message: Message
    payload_bytes: int
    header_bytes: int
    target: Receiver
    tier: str
    folded: bool = False
    parts: int = 1
