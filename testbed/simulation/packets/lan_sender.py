"""The sending end of a connection inside a data centre: frames through two ports, and slow start.

A LAN loses nothing, so the congestion window only grows, by what arrives, as long as it limits the connection (Linux:
``tcp_is_cwnd_limited``). Where a port is idle that takes microseconds; where another node's data waits at it, a new
connection sends ten segments at first and then twice as many each time that it hears of them. Hosts on a fast LAN hand
frames of 64 KB to their ports (segmentation offload); no more than two of a connection wait at its port
(``HostQueue``), so that what is written meanwhile fills the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.plan.model import OFFLOADED_LAN_BPS
from testbed.simulation.clock import Clock
from testbed.simulation.packets.link import HostQueue, PacketPath
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES, take_messages
from testbed.simulation.tcp_model import TcpModel

_OFFLOADED_SEGMENTS = 65_536 // SEGMENT_BYTES
_HOST_FRAMES = 2


class LanSender:
    """With the interface of ``TcpSender``. ``deliver(message)``: when all of it has arrived.

    unsent_bytes  written, and not sent yet
    """

    __slots__ = (
        "_deliver", "_ends", "_frame_bytes", "_grows_unused", "_host_queue", "_most_bytes", "_segments",
        "_under_way_bytes", "_window_bytes", "on_room", "unsent_bytes",
    )  # fmt: skip

    gave_up = False

    def __init__(
        self, clock: Clock, path: PacketPath, model: TcpModel, rate_bps: float, deliver: Callable[[Any], None]
    ) -> None:
        self._deliver = deliver
        self._host_queue = HostQueue(clock, path)
        self._segments = _OFFLOADED_SEGMENTS if rate_bps >= OFFLOADED_LAN_BPS else 1
        self._frame_bytes = self._segments * SEGMENT_BYTES
        self._ends: deque[list[Any]] = deque()  # [bytes of the unsent stream up to its end, message]
        self._window_bytes = model.initial_window_bytes + model.setup_segments * SEGMENT_BYTES
        self._grows_unused = not model.loss_based  # BBR's does, with whatever arrives (``bbr_set_cwnd``)
        self._under_way_bytes = self._most_bytes = 0  # ``_most_bytes``: that have been under way at once
        self.unsent_bytes = 0
        self.on_room: Callable[[], None] = self.push

    @property
    def idle(self) -> bool:
        """Whether all that was written has arrived."""
        return not self._under_way_bytes and not self.unsent_bytes

    def write(self, size_bytes: int, message: Any = None) -> None:
        self.unsent_bytes += size_bytes
        if message is not None:
            self._ends.append([self.unsent_bytes, message])

    def push(self, more: bool = False) -> None:
        """Send what the port takes. ``more``: only full frames, as more is being written."""
        limit_bytes = _HOST_FRAMES * self._segments * (SEGMENT_BYTES + HEADER_BYTES)
        least_bytes = self._frame_bytes if more else 1
        while self.unsent_bytes >= least_bytes and self._under_way_bytes < self._window_bytes:
            if self._host_queue.is_full(limit_bytes, self.on_room):
                return
            self._send()

    def _send(self) -> None:
        room_bytes = max(SEGMENT_BYTES, int(self._window_bytes) - self._under_way_bytes)
        size_bytes = min(self.unsent_bytes, self._frame_bytes, room_bytes)
        self.unsent_bytes -= size_bytes
        messages = take_messages(self._ends, size_bytes)
        self._under_way_bytes += size_bytes
        self._most_bytes = max(self._most_bytes, self._under_way_bytes)
        segments = -(-size_bytes // SEGMENT_BYTES)
        self._host_queue.send(size_bytes + segments * HEADER_BYTES, self._arrived, (size_bytes, messages))

    def _arrived(self, frame: tuple[int, list[Any]]) -> None:
        size_bytes, messages = frame
        self._under_way_bytes -= size_bytes
        if self._grows_unused or self._window_bytes < 2 * self._most_bytes:
            self._window_bytes += size_bytes
        for message in messages:
            self._deliver(message)
        self.on_room()
