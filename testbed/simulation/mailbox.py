"""What has arrived at a simulated node, and who takes it: receivers one by one, or a handler everything."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.messages import Message
from testbed.simulation.clock import Clock, VirtualFuture

Handle = Callable[[Message], bool]


class Mailbox:
    """In the order of arrival. A handler is called in place of a coroutine that waits for messages, when that would go
    on: where other events come first at this instant, after them.
    """

    __slots__ = ("_busy", "_clock", "_end", "_handle", "_messages", "_receivers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._messages: deque[Message] = deque()
        self._receivers: deque[VirtualFuture[Message]] = deque()
        self._handle: Handle | None = None
        self._end: VirtualFuture[None] = VirtualFuture(clock)
        self._busy = False  # handling, or about to

    def put(self, message: Message, last: bool = False) -> None:
        """``last``: the event that brings it does nothing after this."""
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                (receiver.set_last if last else receiver.set_result)(message)
                return
        self._messages.append(message)
        if self._handle is None or self._busy:
            return
        queue, now = self._clock.pending, self._clock.now
        if last and (not queue or queue[0][0] > now):
            self._go_on(None)
        else:
            self._busy = True
            self._clock.at(now, self._go_on)

    def next(self) -> VirtualFuture[Message]:
        """The next message, perhaps to come."""
        arrival: VirtualFuture[Message] = VirtualFuture(self._clock)
        if self._messages and not self._receivers:
            arrival.set_result(self._messages.popleft())
        else:
            self._receivers.append(arrival)
        return arrival

    def give_up(self, arrival: VirtualFuture[Message]) -> None:
        """Nobody waits for that any more."""
        self._receivers.remove(arrival)

    def serve(self, handle: Handle) -> VirtualFuture[None]:
        """Hand everything to ``handle``, beginning with what is here, until it returns False or raises."""
        assert self._handle is None, "two take all messages"
        self._handle, self._end = handle, VirtualFuture(self._clock)
        self._go_on(None)
        return self._end

    def close(self) -> list[Message]:
        """Nobody takes anything any more. Returns what nobody took."""
        self._handle = None
        missed = list(self._messages)
        self._messages.clear()
        return missed

    def _go_on(self, _: Any) -> None:
        self._busy = True
        try:
            while self._messages and self._handle is not None:
                if not self._handle(self._messages.popleft()):
                    self._handle = None
                    self._end.set_result(None)
        except (Exception, KeyboardInterrupt) as error:
            self._handle = None
            self._end.set_exception(error)
        finally:
            self._busy = False
