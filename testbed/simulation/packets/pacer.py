"""When a paced sender's next burst may leave (Linux' internal pacing: ``tcp_update_skb_after_send``)."""

from __future__ import annotations

import math

_UNPACED_SEGMENTS = 10  # of a connection, as without pacing


class BurstPacer:
    """``next_s``: when the next burst may leave. ``segments``: that have been sent."""

    __slots__ = ("_segments", "next_s")

    def __init__(self, segments: int) -> None:
        self._segments, self.next_s = segments, -math.inf

    def sent(self, now_s: float, segments: int, size_bytes: int, bytes_per_s: float) -> None:
        """A burst leaves. What it is late by shortens the pause after it, by half of it at most."""
        self._segments += segments
        late_s, self.next_s = max(0.0, now_s - self.next_s), max(self.next_s, now_s)
        if self._segments >= _UNPACED_SEGMENTS:
            pause_s = size_bytes / bytes_per_s
            self.next_s += pause_s - min(pause_s / 2, late_s)
