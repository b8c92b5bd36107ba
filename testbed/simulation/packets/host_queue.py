"""What one connection has waiting at its node's port (TCP small queues; Linux: ``tcp_small_queue_check``).

The limit is of each connection, not of the port: those of a node that send at once take turns there, burst by burst.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.link import PacketPath


class HostQueue:
    """``on_room()``: the connection may send again that has waited."""

    __slots__ = ("_call_on_room", "_clock", "_frames", "_path", "_waiting_bytes", "_waits")

    def __init__(self, clock: Clock, path: PacketPath, on_room: Callable[[], None]) -> None:
        self._clock, self._path, self._call_on_room = clock, path, on_room
        self._frames: deque[tuple[float, int]] = deque()  # that have not left: when each will, and its bytes
        self._waiting_bytes, self._waits = 0, False

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        self._forget_left()
        return not self._frames

    def send(self, size_bytes: int, receive: Callable[[Any], None], argument: Any) -> None:
        """Send a frame; at the other end, call ``receive(argument)``."""
        leaves_s = self._path.send(size_bytes, receive, argument)
        if leaves_s > self._clock.now:
            self._frames.append((leaves_s, size_bytes))
            self._waiting_bytes += size_bytes

    def is_full(self, limit_bytes: float) -> bool:
        """Whether at least so much waits; then ``on_room()`` follows when less does."""
        if not self._waits:
            self._forget_left()
            room_s, waiting_bytes = -1.0, self._waiting_bytes
            for leaves_s, size_bytes in self._frames:
                if waiting_bytes < limit_bytes:
                    break
                room_s, waiting_bytes = leaves_s, waiting_bytes - size_bytes
            self._waits = room_s > self._clock.now
            if self._waits:
                self._clock.at(room_s, self._on_room)
        return self._waits

    def _on_room(self, _: Any) -> None:
        self._waits = False
        self._call_on_room()

    def _forget_left(self) -> None:
        frames, now = self._frames, self._clock.now
        while frames and frames[0][0] <= now:
            self._waiting_bytes -= frames.popleft()[1]
