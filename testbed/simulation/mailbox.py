"""The messages that have arrived at a simulated node, for receivers that take one each or a handler that takes all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.messages import Message
from testbed.simulation.clock import Clock, VirtualFuture

Handle = Callable[[Message], bool]


class Mailbox:
    """A queue of messages in the order of arrival.

    A handler is called where a coroutine that receives in a loop would resume: after the events that were scheduled
    for this instant before the message came.
    """

    __slots__ = ("_busy", "_clock", "_end", "_handle", "_messages", "_receivers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._messages: deque[Message] = deque()
        self._receivers: deque[VirtualFuture[Message]] = deque()
        self._handle: Handle | None = None
        self._end: VirtualFuture[None] = VirtualFuture(clock)
        self._busy = False  # the handler runs, or is scheduled to

    def put(self, message: Message, last: bool = False) -> None:
        """Add a message. ``last``: the caller's event does nothing afterwards (``VirtualFuture.set_result_last``)."""
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                (receiver.set_result_last if last else receiver.set_result)(message)
                return
        self._messages.append(message)
        if self._handle is None or self._busy:
            return
        if last and self._clock.last_of_instant:
            self._handle_messages(None)
        else:
            self._busy = True
            self._clock.soon(self._handle_messages)

    def next(self) -> VirtualFuture[Message]:
        """Return the next message as a future."""
        arrival: VirtualFuture[Message] = VirtualFuture(self._clock)
        if self._messages and not self._receivers:
            arrival.set_result(self._messages.popleft())
        else:
            self._receivers.append(arrival)
        return arrival

    def withdraw(self, arrival: VirtualFuture[Message]) -> None:
        """Remove a future that ``next`` has returned and that no task waits for any longer."""
        self._receivers.remove(arrival)

    def serve(self, handle: Handle) -> VirtualFuture[None]:
        """Pass every message to ``handle``, beginning with those that are here, until it returns False.

        The future is set then, or to the error that ``handle`` raises.
        """
        assert self._handle is None, "only one handler may take all messages"
        self._handle, self._end = handle, VirtualFuture(self._clock)
        self._handle_messages(None)
        return self._end

    def close(self) -> list[Message]:
        """Stop handling messages. Return those that were not taken."""
        self._handle = None
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def _handle_messages(self, _: Any) -> None:
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
