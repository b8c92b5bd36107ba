"""What a connection has to send: messages by priority, but for those that the kernel has taken.

The kernel takes messages as long as less than TCP_NOTSENT_LOWAT waits in the socket unsent. Nothing overtakes what it
has taken: neither that, nor what has left the sender and waits in a queue of the path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

OnStart = Callable[[], None]
_Waiting = tuple[float, int, float, Any, OnStart | None]


class SimulatedConnection(Protocol):
    """One direction to another node: a ``FlowConnection``, or a ``PacketConnection``.

    busy, idle        any message has not been sent completely; none is, and it is set up
    waiting_bytes     of all messages that have not begun
    on_room, on_idle  called when a message has left the queue; when nothing is left to send
    """

    on_room: Callable[[], None] | None
    on_idle: Callable[[], None] | None

    @property
    def busy(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    @property
    def waiting_bytes(self) -> float: ...
    def drop_messages(self) -> None: ...
    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None: ...
    def stop(self, until_s: float) -> None: ...


class SimulatedSendQueue:
    """The messages of a ``PacketConnection``; a ``FlowConnection`` has them in its network (``flows.waiting``).

    ``length`` and ``size_bytes``: of all messages in it.
    """

    __slots__ = ("_by_priority", "_number", "_taken", "length", "size_bytes")

    def __init__(self) -> None:
        self._by_priority: list[_Waiting] = []  # and by their order
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
        """Take the next messages, ``size_bytes`` or a little more, unless some of an earlier batch are left."""
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
