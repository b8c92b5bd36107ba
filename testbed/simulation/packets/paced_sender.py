"""The sending end of a TCP connection with BBR: what leaves is paced, and delivery rates set window and pace.

Pacing    a burst of what the rate sends in 1 ms leaves at a time, at most half of a window (Linux' internal pacing)
Window    set with each acknowledgement, while losses are repaired, too; it neither shrinks when idle nor by PRR
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.bbr import Bbr
from testbed.simulation.packets.delivery_rate import DeliveryRate
from testbed.simulation.packets.link import PacketPath
from testbed.simulation.packets.receiver import TcpReceiver
from testbed.simulation.packets.scoreboard import Delivered
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.packets.sender import Prior, RecoveryState, TcpSender
from testbed.simulation.tcp_model import TcpModel

_UNPACED_SEGMENTS = 10  # of a connection, as without pacing


class BurstPacer:
    """When the next burst may leave: ``next_s`` (``tcp_update_skb_after_send``). ``segments``: that have been sent."""

    __slots__ = ("_segments", "next_s")

    def __init__(self, segments: int) -> None:
        self._segments = segments
        self.next_s = -math.inf

    def sent(self, now_s: float, segments: int, size_bytes: int, bytes_per_s: float) -> None:
        """A burst leaves. What it is late by shortens the pause after it, by half of it at most."""
        self._segments += segments
        late_s, self.next_s = max(0.0, now_s - self.next_s), max(self.next_s, now_s)
        if self._segments >= _UNPACED_SEGMENTS:
            pause_s = size_bytes / bytes_per_s
            self.next_s += pause_s - min(pause_s / 2, late_s)


class PacedSender(TcpSender):
    """``random``: of BBR's cycles."""

    __slots__ = ("_bbr", "_pacer", "_waits_for_pacer")

    def __init__(self, clock: Clock, path: PacketPath, model: TcpModel, rtt_s: float, random: Random) -> None:
        first_window = int(model.initial_window_bytes / SEGMENT_BYTES)
        self._bbr = Bbr(rtt_s, first_window, clock.now, random)
        super().__init__(clock, path, model, rtt_s, self._bbr)
        self.window += model.setup_segments  # it grows even if nothing fills it
        self._restarts = False
        self._pacer = BurstPacer(model.setup_segments)
        self._waits_for_pacer = False

    def connect(self, receiver: TcpReceiver, delivery: DeliveryRate | None = None) -> None:
        super().connect(receiver, delivery or self._bbr.delivery)

    @property
    def paced_for_s(self) -> float:
        return max(0.0, self._pacer.next_s - self._clock.now)

    @property
    def pacing_bytes_per_s(self) -> float:
        return self._bbr.pacing_bytes_per_s

    def write(self, size_bytes: int, message: Any = None) -> None:
        if self._is_application_limited:
            self._bbr.delivery.limit(self.in_flight)
        super().write(size_bytes, message)

    @property
    def _is_application_limited(self) -> bool:
        """Whether neither the host nor the window limits the rate (``tcp_rate_check_app_limited``)."""
        scoreboard = self._scoreboard
        return (
            self.unsent_bytes < SEGMENT_BYTES
            and self._host_queue.empty
            and scoreboard.in_flight < self.window
            and scoreboard.lost <= scoreboard.again
        )

    def _burst_segments(self) -> int:
        return min(self._bbr.burst_segments, max(self.window // 2, 1), self.window - self.in_flight)

    def _pace(self, segments: int, size_bytes: int) -> None:
        self._pacer.sent(self._clock.now, segments, size_bytes, self.pacing_bytes_per_s)

    def _is_paced(self) -> bool:
        if self._pacer.next_s <= self._clock.now:
            return False
        if not self._waits_for_pacer:
            self._waits_for_pacer = True
            self._clock.at(self._pacer.next_s, self._on_pacer)
        return True

    def _on_pacer(self, _: Any) -> None:
        self._waits_for_pacer = False
        self._resend_lost()
        self.on_room()

    def _set_window(self, delivered: Delivered, prior: Prior) -> None:
        now = self._clock.now
        marked = self._scoreboard.marked
        rtt_s = now - delivered.latest_s if delivered.latest_s <= now else -1.0
        told = delivered.segments, marked - prior.marked, marked, prior.in_flight
        sample = self._bbr.delivery.sample(now, told, rtt_s, self._round_trips.least_s)
        self._bbr.update(self, sample, repairs=self._state is not RecoveryState.OPEN)

    def _reduce(self, delivered: int, advanced: bool) -> None:
        """Leave the window to BBR."""

    def _end_reduction(self) -> None:
        """Likewise."""
