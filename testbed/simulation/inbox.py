"""The receiving side of a simulated node: what reading a message costs, and when the role gets it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.messages import Message, MessageKind
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.mailbox import Mailbox
from testbed.simulation.node import SimulatedNode
from testbed.simulation.predicted_transfer import PredictedTransfer
from testbed.simulation.recorder import VirtualRecorder


class SimulatedInbox:
    """Reads the messages that arrive at a node one after another, ``message_cost_s`` each, and puts them into the
    mailbox. On a shared host reading takes one of its cores instead (``testbed.simulation.host``).
    """

    def __init__(self, node: SimulatedNode, clock: Clock, recorder: VirtualRecorder, message_cost_s: float) -> None:
        self.node, self.mailbox = node, Mailbox(clock)
        self._clock, self._recorder, self._message_cost_s = clock, recorder, message_cost_s
        self.reading_until_s = 0.0  # when everything that has arrived has been read
        self.predicted_transfer: PredictedTransfer | None = None  # under way to this node
        self.on_missed: Callable[[Message], None] = lambda message: None  # called for messages after the node's end

    def deliver(self, envelope: Envelope, copies: int = 1) -> None:
        """Take an envelope whose last byte has arrived, or a part of it from ``copies`` folded senders.

        The message of an envelope in several parts is handed over with the last of them.
        """
        if not envelope.forwarded:
            envelope.arrived = True
            return
        if self.predicted_transfer is not None:
            self.predicted_transfer.catch_up()
        envelope.parts -= 1
        thread = self.node.thread
        if thread is not None:
            size_bytes = envelope.payload_bytes + envelope.header_bytes
            thread.do(thread.host.message_s(size_bytes), partial(self._hand_over, envelope, False))
            return
        cost_s = self._message_cost_s * copies
        if cost_s <= 0:
            if not envelope.parts:
                self._hand_over(envelope)
            return
        ready_s = self._read(self._clock.now, cost_s)
        if not envelope.parts:
            self._clock.at(ready_s, self._hand_over, envelope)

    def part_arrived(self, envelope: Envelope, copies: int, at_s: float) -> None:
        """As ``deliver``, at a past time, for a part that is not the last one."""
        envelope.parts -= 1
        self._read(at_s, self._message_cost_s * copies)

    def _read(self, at_s: float, cost_s: float) -> float:
        """Read what arrived at ``at_s`` after all that arrived before. Return when that is done."""
        self.reading_until_s = (at_s if at_s > self.reading_until_s else self.reading_until_s) + cost_s
        return self.reading_until_s

    def _hand_over(self, envelope: Envelope, last: bool = True) -> None:
        """Put the message into the mailbox. ``last``: this event does nothing afterwards."""
        node, now = self.node, self._clock.now
        if node.ended:
            self.on_missed(envelope.message)
            return
        if node.paused_until_s > now:
            self._clock.at(node.paused_until_s, self._hand_over, envelope)
            return
        message = envelope.message
        self._recorder.arrived(message, envelope.payload_bytes, envelope.header_bytes, envelope.tier, now)
        self.mailbox.put(message, last)

    def report_lost(self, peer: str, reason: str) -> None:
        """Tell the role that the node ``peer`` is lost."""
        if not self.node.ended:
            lost = Message(MessageKind.LOST, meta={"why": reason}, sender=peer, sent_at_s=self._clock.now)
            self.mailbox.put(lost)

    def close(self) -> None:
        """The node has ended: what it has not taken, and what still arrives, goes to ``on_missed``."""
        for message in self.mailbox.close():
            self.on_missed(message)
