"""The sending end of a connection inside a data centre: frames through two ports, without a window.

A LAN loses nothing and answers within microseconds, so that nothing but the ports limits a connection. Hosts on a fast
LAN hand frames of 64 KB to their ports (segmentation offload); no more than two of a connection wait at its port
(``host_queue``), so that what is written meanwhile fills the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.plan.model import OFFLOADED_LAN_BPS
from testbed.simulation.clock import Clock
from testbed.simulation.packets.host_queue import HostQueue
from testbed.simulation.packets.link import PacketPath
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES, take_messages

_OFFLOADED_SEGMENTS = 65_536 // SEGMENT_BYTES
_HOST_FRAMES = 2


class LanSender:
    """With the interface of ``TcpSender``. ``deliver(message)``: when all of it has arrived.

    unsent_bytes  written, and not sent yet
    """

    __slots__ = (
        "_deliver", "_ends", "_frame_bytes", "_host_queue", "_segments", "_under_way", "on_room", "unsent_bytes",
    )  # fmt: skip

    gave_up = False

    def __init__(self, clock: Clock, path: PacketPath, rate_bps: float, deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver
        self._host_queue = HostQueue(clock, path, self._port_has_room)
        self._segments = _OFFLOADED_SEGMENTS if rate_bps >= OFFLOADED_LAN_BPS else 1
        self._frame_bytes = self._segments * SEGMENT_BYTES
        self._ends: deque[list[Any]] = deque()  # [bytes of the unsent stream up to its end, message]
        self._under_way = 0
        self.unsent_bytes = 0
        self.on_room: Callable[[], None] = self.push

    @property
    def idle(self) -> bool:
        """Whether all that was written has arrived."""
        return not self._under_way and not self.unsent_bytes

    def write(self, size_bytes: int, message: Any = None) -> None:
        """Append bytes to what is to be sent. With ``message``: it ends there."""
        self.unsent_bytes += size_bytes
        if message is not None:
            self._ends.append([self.unsent_bytes, message])

    def push(self, more: bool = False) -> None:
        """Send what the port takes. ``more``: only full frames, as more is being written."""
        limit_bytes = _HOST_FRAMES * self._segments * (SEGMENT_BYTES + HEADER_BYTES)
        while self.unsent_bytes >= (self._frame_bytes if more else 1) and not self._host_queue.is_full(limit_bytes):
            self._send()

    def _port_has_room(self) -> None:
        self.on_room()

    def _send(self) -> None:
        size_bytes = min(self.unsent_bytes, self._frame_bytes)
        self.unsent_bytes -= size_bytes
        messages = take_messages(self._ends, size_bytes)
        self._under_way += 1
        segments = -(-size_bytes // SEGMENT_BYTES)
        self._host_queue.send(size_bytes + segments * HEADER_BYTES, self._arrived, messages)

    def _arrived(self, messages: list[Any]) -> None:
        self._under_way -= 1
        for message in messages:
            self._deliver(message)
