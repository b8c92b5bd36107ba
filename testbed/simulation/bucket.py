"""The token bucket of an emulated link: after silence, its first bytes pass at once.

The emulator shapes by HTB, whose bucket holds some milliseconds' worth lest late timers cost rate
(``burst_bytes``); the packet that empties it passes as well. A real link has none, so this is part of
predicting an emulation (``simulation.host``), as the cores are that it shares.
"""

from __future__ import annotations

from testbed.plan.shaping import FRAME_BYTES, burst_bytes

_LAST_BYTES = 1.0  # these have their time from the sender, who may send them late


class Bucket:
    """Of one direction of a link. It fills while nobody sends; nothing is added while somebody does."""

    __slots__ = ("_goodput", "_idle_since_s", "_senders", "_tokens")

    def __init__(self, goodput: float) -> None:
        self._goodput = goodput
        self._tokens, self._idle_since_s, self._senders = 0.0, -1.0, 0

    def enter(self, now_s: float, size_bytes: float, rate_bps: float) -> float:
        """Somebody begins to send; returns how much of it passes at once."""
        if not self._senders:
            depth = (burst_bytes(rate_bps) + FRAME_BYTES) * self._goodput
            filled = self._tokens + rate_bps / 8 * self._goodput * (now_s - self._idle_since_s)
            self._tokens = min(depth, filled)
        self._senders += 1
        passed = min(self._tokens, max(0.0, size_bytes - _LAST_BYTES))
        self._tokens -= passed
        return passed

    def leave(self, now_s: float) -> None:
        """That has been sent."""
        self._senders -= 1
        self._idle_since_s = now_s
