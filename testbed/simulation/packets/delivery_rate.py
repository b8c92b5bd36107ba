"""The rate at which a path delivers, from one acknowledgement to the next, as Linux samples it (``tcp_rate_gen``).

A segment notes what had been delivered when it was sent, and when. When it has arrived, what was delivered since, over
the time since, is a sample: the longer of the time in which that was sent, and the time in which it was acknowledged
(Cheng, Cardwell, Hassas Yeganeh and Jacobson, draft-cheng-iccrg-delivery-rate-estimation). A sample of segments before
which nothing was left to send tells of the program, not of the path: it is ``application_limited``.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.simulation.packets.segment import DeliveryState, TcpSegment


class RateSample(NamedTuple):
    """What an acknowledgement tells, in segments, and the rate.

    segments               that have arrived since the one before
    losses, lost           marked as lost by it, and in all
    prior_in_flight        before it came
    delivered, interval_s  segments and the time they took; negative: there is no rate
    prior_delivered        delivered when the last one of these was sent
    rtt_s                  of the last one; negative: it tells of none
    """

    segments: int
    losses: int
    lost: int
    prior_in_flight: int
    delivered: int
    interval_s: float
    prior_delivered: int
    application_limited: bool
    rtt_s: float


class DeliveryRate:
    """``delivered``: all segments that have arrived. ``delivered_s``: when the last did, by an acknowledgement."""

    __slots__ = ("_first_sent_s", "_last", "_limited_until", "_send_s", "delivered", "delivered_s")

    def __init__(self, now_s: float) -> None:
        self.delivered = 0
        self.delivered_s = now_s
        self._first_sent_s = now_s
        self._limited_until = 0
        self._last: tuple[float, int, DeliveryState] | None = None  # of the acknowledgement: when it was sent, which
        self._send_s = 0.0

    @property
    def application_limited(self) -> bool:
        """Whether what is sent now has nothing to follow it."""
        return self._limited_until > 0

    def limit(self, in_flight: int) -> None:
        """Nothing is left to send."""
        self._limited_until = (self.delivered + in_flight) or 1

    def sent(self, segment: TcpSegment, now_s: float, out: int) -> None:
        """Note the present state in a segment. ``out``: those that were not acknowledged in order before it."""
        if not out:
            self._first_sent_s = self.delivered_s = now_s
        segment.delivery = DeliveryState(self.delivered, self.delivered_s, self._first_sent_s, self.application_limited)

    def arrived(self, segment: TcpSegment) -> None:
        """Take a segment that is acknowledged for the first time."""
        self.delivered += 1
        if segment.delivery is None:
            return
        at = segment.sent_s, segment.number
        if self._last is None or at > self._last[:2]:
            self._last = (*at, segment.delivery)
            self._first_sent_s = segment.sent_s
            self._send_s = segment.sent_s - segment.delivery.first_sent_s

    def sample(self, now_s: float, told: tuple[int, int, int, int], rtt_s: float, least_rtt_s: float) -> RateSample:
        """Return that of an acknowledgement, all of whose segments have been taken. ``told``: its first four fields."""
        if self.delivered > self._limited_until:
            self._limited_until = 0
        if told[0]:
            self.delivered_s = now_s
        last, self._last = self._last, None
        if last is None:
            return RateSample(*told, -1, -1.0, 0, False, rtt_s)
        state = last[2]
        interval_s = max(self._send_s, now_s - state.delivered_s)
        if interval_s < least_rtt_s - 1e-9:
            interval_s = -1.0
        delivered = self.delivered - state.delivered
        return RateSample(*told, delivered, interval_s, state.delivered, state.application_limited, rtt_s)


class WindowedMaximum:
    """The maximum of the last ``length`` rounds, by the three best values of parts of it (Linux: ``minmax``)."""

    __slots__ = ("_best", "_length")

    def __init__(self, length: int) -> None:
        self._length = length
        self._best = [(0, 0.0)] * 3

    @property
    def value(self) -> float:
        return self._best[0][1]

    def add(self, number: int, value: float) -> None:
        best = self._best
        sample = (number, value)
        if value >= best[0][1] or number - best[2][0] > self._length:
            self._best = [sample] * 3
            return
        if value >= best[1][1]:
            best[1] = best[2] = sample
        elif value >= best[2][1]:
            best[2] = sample
        age = number - best[0][0]
        if age > self._length:
            best[:] = [best[1], best[2], sample]
            if number - best[0][0] > self._length:
                best[:] = [best[1], best[2], sample]
        elif best[1][0] == best[0][0] and age > self._length // 4:
            best[1] = best[2] = sample
        elif best[2][0] == best[1][0] and age > self._length // 2:
            best[2] = sample
