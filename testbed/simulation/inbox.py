"""The receiving side of a simulated node: it reads messages, which takes time, and hands them to the node's role."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.messages import Message, MessageKind
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.envelope import Envelope
from testbed.simulation.node import SimulatedNode
from testbed.simulation.recorder import VirtualRecorder

Handle = Callable[[Message], bool]


class SimulatedInbox:
    """Reads the messages that arrive at a node one after another, ``message_cost_s`` each.

    It keeps them in that order, either for receivers, which take one message each, or for a handler, which takes all.
    The handler is called when a coroutine that receives in a loop would resume: after the events that were scheduled
    for this instant before the message came.
    """

    def __init__(self, node: SimulatedNode, clock: Clock, recorder: VirtualRecorder, message_cost_s: float) -> None:
        self.node = node
        self._clock = clock
        self._recorder = recorder
        self._message_cost_s = message_cost_s
        self.reading_until_s = 0.0  # when everything that has arrived has been read
        self.catch_up: Callable[[], None] | None = None  # set by a ``PredictedTransfer``; called before each delivery
        self.on_missed: Callable[[Message], None] = lambda message: None  # called for messages after the node's end
        self._held: deque[Envelope] = deque()  # arrived while the node was paused
        self._messages: deque[Message] = deque()
        self._receivers: deque[VirtualFuture[Message]] = deque()
        self._handle: Handle | None = None
        self._end: VirtualFuture[None] = VirtualFuture(clock)
        self._busy = False  # the handler runs, or is scheduled to

    def deliver(self, envelope: Envelope, copies: int = 1) -> None:
        """Take an envelope whose last byte has arrived, or its part from ``copies`` folded senders.

        If the envelope has several parts, its message is handed over with the last part.
        """
        if self.catch_up is not None:
            self.catch_up()
        envelope.parts -= 1
        cost_s = self._message_cost_s * copies
        if cost_s <= 0:
            if envelope.folded:
                self._decode_part(envelope, copies, self._clock.now)
            if not envelope.parts:
                self._hand_over(envelope)
            return
        ready_s = self._read(self._clock.now, cost_s)
        if envelope.folded:
            self._decode_part(envelope, copies, ready_s - cost_s)
        if not envelope.parts:
            self._clock.at(ready_s, self._hand_over, envelope)

    def part_arrived(self, envelope: Envelope, copies: int, at_s: float) -> None:
        """Take a part of an envelope that arrived at the past time ``at_s`` and is not the last one."""
        envelope.parts -= 1
        cost_s = self._message_cost_s * copies
        self._decode_part(envelope, copies, self._read(at_s, cost_s) - cost_s)

    def _decode_part(self, envelope: Envelope, copies: int, begin_s: float) -> None:
        """Let the codec core decode the contributions of folded workers, which are read one by one."""
        work = envelope.message.decoding
        if work is not None:
            core = self.node.coding
            work.done_s = core.take_copies(begin_s, self._message_cost_s, copies, core.duration_s(work))

    def _read(self, at_s: float, cost_s: float) -> float:
        """Read an arrival of ``at_s`` for ``cost_s``, after all earlier arrivals. Return when it has been read."""
        self.reading_until_s = (at_s if at_s > self.reading_until_s else self.reading_until_s) + cost_s
        return self.reading_until_s

    def _hand_over(self, envelope: Envelope) -> None:
        """Give the message to the role as soon as the node is not paused."""
        if not self.node.ended and (self.node.paused_until_s > self._clock.now or self._held):
            self._held.append(envelope)
            self._clock.at(self.node.paused_until_s, self._hand_over_held)
        else:
            self._give(envelope)

    def _hand_over_held(self, _: Any) -> None:
        """Give the role the first held message. So messages keep the order of arrival even if pauses overlap."""
        if self.node.paused_until_s > self._clock.now:
            self._clock.at(self.node.paused_until_s, self._hand_over_held)
        else:
            self._give(self._held.popleft())

    def take_aside(self, message: Message) -> None:
        """Take a message that has not come over the network, as soon as the node is not paused."""
        if self.node.ended:
            return
        if self.node.paused_until_s > self._clock.now:
            self._clock.at(self.node.paused_until_s, self.take_aside, message)
        else:
            self.put(message)

    def _give(self, envelope: Envelope) -> None:
        message = envelope.message
        if self.node.ended:
            self.on_missed(message)
            return
        self._recorder.arrived(message, envelope.payload_bytes, envelope.header_bytes, envelope.tier, self._clock.now)
        self.put(message, last=True)

    def report_lost(self, peer: str, reason: str) -> None:
        """Tell the role that the node ``peer`` is lost."""
        if not self.node.ended:
            lost = Message(MessageKind.LOST, meta={"why": reason}, sender=peer, sent_at_s=self._clock.now)
            self.put(lost)

    def close(self) -> None:
        """End the node. Messages that it has not taken, and those that still arrive, go to ``on_missed``."""
        self._handle = None
        while self._messages:
            self.on_missed(self._messages.popleft())

    # ---- messages that have been read ---------------------------------------------------------------------------

    def put(self, message: Message, last: bool = False) -> None:
        """Add a message. ``last``: it is the last action of the caller's event (``VirtualFuture.set_result_last``)."""
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                (receiver.set_result_last if last else receiver.set_result)(message)
                return
        self._messages.append(message)
        if self._handle is None or self._busy:
            return
        clock = self._clock
        if last and not clock.ready and not clock.urgent:
            self._handle_messages(None)
        else:
            self._busy = True
            clock.ready.append((self._handle_messages, None))

    def next(self) -> VirtualFuture[Message]:
        """Return the next message as a future."""
        arrival: VirtualFuture[Message] = VirtualFuture(self._clock)
        if self._messages and not self._receivers:
            arrival.set_result(self._messages.popleft())
        else:
            self._receivers.append(arrival)
        return arrival

    def withdraw(self, arrival: VirtualFuture[Message]) -> None:
        """Remove a future from ``next`` for which no task waits any longer."""
        self._receivers.remove(arrival)

    def serve(self, handle: Handle) -> VirtualFuture[None]:
        """Pass every message to ``handle``, beginning with those already here, until it returns False.

        Return a future that is then set, or that gets the error that ``handle`` raises.
        """
        assert self._handle is None, "only one handler may take all messages"
        self._handle = handle
        self._end = VirtualFuture(self._clock)
        self._handle_messages(None)
        return self._end

    def _handle_messages(self, _: Any) -> None:
        self._busy = True
        try:
            while self._messages and self._handle is not None:
                if not self._handle(self._messages.popleft()):
                    self._handle = None
                    self._end.set_result(None)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self._handle = None
            self._end.set_exception(error)
        finally:
            self._busy = False
