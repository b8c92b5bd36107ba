"""The token bucket of a node's port: the HTB class that shapes it lets some milliseconds' worth of bytes pass at once.

Modelled for the LANs of emulated networks (``simulation.network: emulated``, and ``simulation.host``); what leaves a
data centre there goes packet by packet (``testbed.simulation.packets``).
"""

from __future__ import annotations

from testbed.plan.shaping import FRAME_BYTES, burst_bytes

_LAST_BYTES = 1.0  # never passed at once: a flow's last bytes arrive when its sender, who may pace them, has sent them


class PortBucket:
    """The bucket of one direction of a port. ``goodput``: payload bytes per byte of frames.

    A message takes all its bytes when it begins; what is missing then is what the port has yet to send at its rate.
    """

    __slots__ = ("_depth_bytes", "_rate_bytes_per_s", "_seen_s", "_tokens_bytes")

    def __init__(self, rate_bps: float, goodput: float) -> None:
        self._rate_bytes_per_s = rate_bps / 8 * goodput
        self._depth_bytes = (burst_bytes(rate_bps) + FRAME_BYTES) * goodput  # the last frame need not fit
        self._tokens_bytes, self._seen_s = 0.0, -1.0

    def enter(self, now_s: float, size_bytes: float) -> float:
        """Begin to send a message. Return how many of its bytes pass at once."""
        filled_bytes = self._tokens_bytes + self._rate_bytes_per_s * (now_s - self._seen_s)
        self._tokens_bytes, self._seen_s = min(self._depth_bytes, filled_bytes), now_s
        passed_bytes = max(0.0, min(self._tokens_bytes, size_bytes - _LAST_BYTES))
        self._tokens_bytes -= size_bytes
        return passed_bytes
