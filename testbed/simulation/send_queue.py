"""The messages that a connection has yet to send: first those that the kernel has taken, then the others by priority.

The kernel takes messages while fewer than TCP_NOTSENT_LOWAT bytes are unsent in the socket. No message overtakes bytes
that the kernel has taken, in the socket or in a queue of the path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

OnStart = Callable[[], None]
_Waiting = tuple[float, int, float, Any, OnStart | None]


class SimulatedConnection(ABC):
    """One direction to another node: a ``FlowConnection``, or a ``PacketConnection``.

    on_room  called when a message has left the queue
    """

    on_room: Callable[[], None] | None = None
    _on_idle: Callable[[], None] | None = None
    _stopped_until_s = -inf

    @property
    @abstractmethod
    def record(self) -> Any:
        """The record of this connection in its network."""

    @property
    def on_idle(self) -> Callable[[], None] | None:
        """Called when nothing is left to send."""
        return self._on_idle

    @on_idle.setter
    def on_idle(self, call: Callable[[], None] | None) -> None:
        self._on_idle = call
        self.record.tells_idle = call is not None

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any message has not been sent completely."""

    @property
    def idle(self) -> bool:
        """Whether it is set up, and nothing is left to send."""
        return self.record.is_open and not self.busy

    @property
    @abstractmethod
    def waiting_bytes(self) -> float:
        """Bytes of all messages that have not begun."""

    @abstractmethod
    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        """Queue a message. ``on_start()`` is called when its first byte leaves."""

    @abstractmethod
    def drop_messages(self) -> None:
        """Drop the messages that have not begun."""

    @abstractmethod
    def stop(self, until_s: float) -> None:
        """Let the kernel take no more until ``until_s``. If that is infinite, bytes that it has not taken are lost."""

    def _is_killed(self) -> bool:
        return self._stopped_until_s == inf


class SimulatedSendQueue:
    """The messages of a ``PacketConnection``; a ``FlowConnection`` has them in its network (``flows.waiting``).

    ``length`` and ``size_bytes`` count all messages in it.
    """

    __slots__ = ("_by_priority", "_number", "_taken", "length", "size_bytes")

    def __init__(self) -> None:
        self._by_priority: list[_Waiting] = []  # a heap by priority, then by order of arrival
        self._number = 0
        self._taken: deque[_Waiting] = deque()
        self.length = 0
        self.size_bytes = 0.0

    def push(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None) -> None:
        self._number += 1
        heappush(self._by_priority, (-priority, self._number, size_bytes, item, on_start))
        self.size_bytes += size_bytes
        self.length += 1

    def take_batch(self, size_bytes: float) -> None:
        """Take messages as a batch until it has at least ``size_bytes``, unless some of an earlier batch are left."""
        if self._taken:
            return
        taken_bytes = 0.0
        while self._by_priority and taken_bytes < size_bytes:
            message = heappop(self._by_priority)
            self._taken.append(message)
            taken_bytes += message[2]

    def pop(self) -> tuple[float, Any, OnStart | None]:
        """Return and remove the next message: size, item, ``on_start``."""
        _, _, size_bytes, item, on_start = self._taken.popleft() if self._taken else heappop(self._by_priority)
        self.size_bytes -= size_bytes
        self.length -= 1
        return size_bytes, item, on_start

    def clear(self) -> None:
        """Drop all messages."""
        self._taken.clear()
        self._by_priority.clear()
        self.length = 0
        self.size_bytes = 0.0
