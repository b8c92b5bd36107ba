"""What the shaper of an emulated link does to TCP beyond its rate, delay and queue: the token bucket.

Modelled with ``simulation.network: emulated``, and with ``simulation.host``, where a run predicts an emulation to the
per cent; ``two_way_traffic`` likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.two_way_traffic import LinkSender, LinkTraffic, TwoWayTraffic

_LAST_BYTES = 1.0  # never passed at once: a flow's last bytes arrive when its sender, who may pace them, has sent them


def depth_bytes(rate_bps: float) -> int:
    """Return what the shaper's HTB class lets pass at once, in bytes of frames; the last one need not fit."""
    return burst_bytes(rate_bps) + FRAME_BYTES


class TokenBucket:
    """The bucket of the shaper's HTB class on one link.

    It holds some milliseconds' worth of bytes (``depth_bytes``), so that late timers cost no rate. It fills at the
    link's rate while no message is being sent. While one is, tokens are spent as fast as they come in, so nothing is
    added.
    """

    __slots__ = ("_goodput", "_idle_since_s", "_senders", "_tokens")

    def __init__(self, goodput: float) -> None:
        self._goodput = goodput  # payload bytes per byte of frames; tokens are counted in payload bytes
        self._tokens, self._idle_since_s, self._senders = 0.0, -1.0, 0

    def enter(self, now_s: float, size_bytes: float, rate_bps: float) -> float:
        """Begin to send a message. Return how many of its bytes pass at once."""
        if not self._senders:
            depth = depth_bytes(rate_bps) * self._goodput
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


class PortBucket:
    """The bucket of a node's port, which is faster than the links behind it: it fills while messages are being sent.

    A message takes all its bytes when it begins; what is missing then is what the port has yet to send at its rate.
    """

    __slots__ = ("_goodput", "_rate_bps", "_seen_s", "_tokens")

    def __init__(self, rate_bps: float, goodput: float) -> None:
        self._rate_bps, self._goodput = rate_bps, goodput
        self._tokens, self._seen_s = 0.0, -1.0

    def enter(self, now_s: float, size_bytes: float) -> float:
        """Begin to send a message. Return how many of its bytes pass at once."""
        filled = self._tokens + self._rate_bps / 8 * self._goodput * (now_s - self._seen_s)
        self._tokens, self._seen_s = min(depth_bytes(self._rate_bps) * self._goodput, filled), now_s
        passed = max(0.0, min(self._tokens, size_bytes - _LAST_BYTES))
        self._tokens -= size_bytes
        return passed


class Rated(Protocol):
    """A link, whose rate may change."""

    @property
    def rate_bps(self) -> float: ...


class EmulatedLink:
    """One WAN link: its token bucket, and the traffic in both directions where there is a link back."""

    __slots__ = ("_bucket", "_direction", "_link", "_traffic")

    def __init__(
        self, link: Rated, goodput: float, traffic: TwoWayTraffic | None = None, direction: LinkTraffic | None = None
    ) -> None:
        self._link, self._bucket, self._traffic, self._direction = link, TokenBucket(goodput), traffic, direction

    def enter(self, sender: LinkSender, now_s: float, size_bytes: float) -> float:
        """Begin to send a message. Return how many of its bytes pass at once."""
        if self._traffic is not None and self._direction is not None:
            self._traffic.enter(self._direction, sender)
        return self._bucket.enter(now_s, size_bytes, self._link.rate_bps)

    def leave(self, sender: LinkSender, now_s: float) -> None:
        """The message has been sent."""
        if self._traffic is not None and self._direction is not None:
            self._traffic.leave(self._direction, sender)
        self._bucket.leave(now_s)


@dataclass(frozen=True, slots=True)
class EmulatedPath:
    """The links between two nodes, and both nodes' ports."""

    ports: tuple[PortBucket, ...]
    links: tuple[EmulatedLink, ...]

    def enter(self, sender: LinkSender, now_s: float, size_bytes: float) -> float:
        """Begin to send a message. Return how many of its bytes pass everywhere at once."""
        passed_bytes = size_bytes
        for port in self.ports:
            passed_bytes = min(passed_bytes, port.enter(now_s, size_bytes))
        for link in self.links:
            passed_bytes = min(passed_bytes, link.enter(sender, now_s, size_bytes))
        return passed_bytes

    def leave(self, sender: LinkSender, now_s: float) -> None:
        """The message has been sent."""
        for link in self.links:
            link.leave(sender, now_s)
