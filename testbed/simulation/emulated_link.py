"""What an emulated link does to TCP beyond its rate, delay and queue.

Modelled only with ``simulation.host``, where a run predicts an emulation to the per cent.

Two effects: the token bucket of the shaper lets the first bytes after silence pass at once, and acknowledgements of
messages in the other direction take part of the rate.
"""

from __future__ import annotations

from testbed.plan.shaping import FRAME_BYTES, burst_bytes

_SEGMENT_FRAME_BYTES = 1514  # a full segment: Ethernet 14, IP 20, TCP with timestamps 32, payload 1448
_ACKNOWLEDGEMENT_BYTES = 66  # the same headers without payload
# TCP acknowledges every second full segment (delayed acknowledgements: RFC 1122, 4.2.3.2; RFC 5681, 4.2): 2.2 %.
ACKNOWLEDGEMENT_SHARE = _ACKNOWLEDGEMENT_BYTES / (2 * _SEGMENT_FRAME_BYTES)

_LAST_BYTES = 1.0  # never passed at once: a flow's last bytes arrive when its sender, who may pace them, has sent them


class TokenBucket:
    """The bucket of the shaper's HTB class on one link.

    It holds some milliseconds' worth of bytes (``burst_bytes``), so that late timers cost no rate, and the frame that
    empties it passes as well: depth D = burst_bytes(rate) + one frame. It fills at the link's rate while no message is
    being sent. While one is, tokens are spent as fast as they come in, so nothing is added.
    """

    __slots__ = ("_goodput", "_idle_since_s", "_senders", "_tokens")

    def __init__(self, goodput: float) -> None:
        self._goodput = goodput  # payload bytes per byte of frames; tokens are counted in payload bytes
        self._tokens, self._idle_since_s, self._senders = 0.0, -1.0, 0

    def enter(self, now_s: float, size_bytes: float, rate_bps: float) -> float:
        """Begin to send a message. Return how many of its bytes pass at once."""
        if not self._senders:
            depth = (burst_bytes(rate_bps) + FRAME_BYTES) * self._goodput
            filled = self._tokens + rate_bps / 8 * self._goodput * (now_s - self._idle_since_s)
            self._tokens = min(depth, filled)
        self._senders += 1
        passed = min(self._tokens, max(0.0, size_bytes - _LAST_BYTES))
        self._tokens -= passed
        return passed

    def leave(self, now_s: float) -> None:
        """The message has been sent."""
        self._senders -= 1
        self._idle_since_s = now_s


class EmulatedLink:
    """One link. ``reverse``: the link in the other direction, set by the maker of both, if there is one."""

    __slots__ = ("_bucket", "_in_flight_bytes", "reverse")

    def __init__(self, goodput: float) -> None:
        self._bucket = TokenBucket(goodput)
        self._in_flight_bytes = 0.0
        self.reverse: EmulatedLink | None = None

    def enter(self, now_s: float, size_bytes: float, rate_bps: float) -> tuple[float, float]:
        """Begin to send a message. Return how many of its bytes pass at once, and how many bytes of acknowledgements
        are sent with it: for the part of the reverse traffic that overlaps it."""
        self._in_flight_bytes += size_bytes
        overlapping_bytes = min(size_bytes, self.reverse._in_flight_bytes) if self.reverse else 0.0
        return self._bucket.enter(now_s, size_bytes, rate_bps), ACKNOWLEDGEMENT_SHARE * overlapping_bytes

    def leave(self, now_s: float, size_bytes: float) -> None:
        """The message has been sent."""
        self._bucket.leave(now_s)
        self._in_flight_bytes -= size_bytes
