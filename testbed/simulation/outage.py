"""How an outage looks to a TCP sender: only its timers tell it anything.

The timers start anew with every acknowledgement. A tail loss probe is sent after twice the smoothed RTT (RFC 8985,
7.2), or RTO if that is less; what was lost first is sent again RTO after the probe, after twice that time, and so on
(RFC 6298, 5.5). The first of these segments that gets through ends the silence. RTO is the smoothed RTT and 200 ms,
Linux' floor of four mean deviations. The smoothed RTT contains the queueing of an unpaced burst behind itself.

cut      the path itself is down: what leaves the queue before it is lost, and nothing arrives
unheard  only acknowledgements are lost: what the window allows arrives until RTO expires; then nothing new is sent
         until a retransmission is acknowledged, which shows that nothing was lost, so the window stays (RFC 4015)
both     what was lost follows on what arrived unheard. The acknowledgement of a retransmission is then one of segments
         that were sent once: the sender takes its timeout for spurious (F-RTO, RFC 5682) and waits for another probe,
         after twice an RTT that contains the outage. Only the answer to that tells of the loss

What connects meanwhile tries again every second (``set_up``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.paths import SitePath

_LONGEST_TIMEOUT_S = 120.0  # Linux: TCP_RTO_MAX
_GAIN = 1 / 8  # of the smoothed RTT (RFC 6298, 2.3)
_SEGMENTS_PER_SAMPLE = 2  # delayed acknowledgements
# The first SYNs of an attempt to connect are a second apart (Linux from 6.5 on: tcp_syn_linear_timeouts). It ends after
# 5 s, and another one follows (``testbed.realtime.connecting``).
_SYNS, _SYN_S, _ATTEMPT_S = 5, 1.0, 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


def connection_attempts(begin_s: float) -> Iterator[float]:
    """Yield when SYNs are sent from ``begin_s`` on, as long as none is answered."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield from (begin_s + number * _SYN_S for number in range(_SYNS))
        begin_s += _ATTEMPT_S + pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def set_up(
    clock: Clock, path: SitePath, round_trips: float, given_up: Callable[[], bool], done: Callable[[Any], None]
) -> None:
    """Connect, which takes so many round trips. ``given_up()``: the process has ended, and sends no further SYN."""
    attempts = connection_attempts(clock.now)

    def attempt(_: Any) -> None:
        if path.up and path.acknowledged:
            clock.at(clock.now + round_trips * path.rtt_s, done)
        elif not given_up():
            clock.at(next(attempts), attempt)

    attempt(next(attempts))


@dataclass(frozen=True, slots=True)
class Timers:
    """A sender's timers, in seconds. ``started_s``: when the last acknowledgement came, or the first segment left."""

    started_s: float
    smoothed_rtt_s: float
    timeout_s: float

    @property
    def probe_s(self) -> float:
        """When the tail loss probe is sent."""
        return self.started_s + min(2 * self.smoothed_rtt_s, self.timeout_s)

    @property
    def expires_s(self) -> float:
        """When the first segment that was not acknowledged is sent again."""
        return self.probe_s + self.timeout_s

    def found_s(self, up_s: float) -> float:
        """Return when the first segment gets through over a path that is up since ``up_s``."""
        at_s, timeout_s = self.probe_s, self.timeout_s
        while at_s < up_s:
            at_s += timeout_s
            timeout_s = min(2 * timeout_s, _LONGEST_TIMEOUT_S)
        return at_s

    def found_out_s(self, found_s: float, rtt_s: float) -> float:
        """Return when the sender knows what was lost behind a segment that it took for late, found at ``found_s``."""
        smoothed_rtt_s = self.smoothed_rtt_s + _GAIN * (found_s + rtt_s - self.started_s - self.smoothed_rtt_s)
        return found_s + rtt_s + 2 * smoothed_rtt_s + rtt_s


def smoothed_queueing_s(before_s: float, last_s: float, segments: float) -> float:
    """Return the queueing delay in the smoothed RTT after a burst in which it has grown from 0 to ``last_s``.

    With n samples i·d and the gain 1/8 that is q^n·before + d·(n - 7·(1 - q^n)), where q = 7/8.
    """
    samples = segments / _SEGMENTS_PER_SAMPLE
    samples = max(samples, 1.0)
    forgotten = math.pow(1 - _GAIN, samples)
    return forgotten * before_s + last_s * (1 - (1 / _GAIN - 1) * (1 - forgotten) / samples)


class SenderOutage:
    """What a sender knows of the present outage.

    timers   that run since the last acknowledgement; None: all have come
    silent   nothing (more) gets through
    cut      the path itself has been down
    unheard  something has arrived of which the acknowledgement was lost
    """

    __slots__ = ("_cut_s", "cut", "silent", "timers", "unheard")

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """Note that acknowledgements come again."""
        self.timers: Timers | None = None
        self.silent = self.cut = self.unheard = False
        self._cut_s = math.inf

    def begin(self, timers: Timers, now: float, path: SitePath, under_way: bool) -> None:
        """Note that no acknowledgement comes any more. ``under_way``: something had left before."""
        if self.timers is None or timers.started_s < self.timers.started_s:
            self.timers = timers
        if not path.up:
            self._cut_s = min(self._cut_s, now if under_way else -math.inf)
            self.silent = self.cut = True
        # an acknowledgement begins its way when a segment ends its own
        self.unheard |= not path.acknowledged and now < self._cut_s + path.delay_s

    def noticed(self, now: float) -> bool:
        """Return whether the sender has noticed."""
        return self.timers is not None and (self.silent or now >= self.timers.expires_s)

    def ends_s(self, up_s: float, rtt_s: float) -> float:
        """Return when new data get through again, or what was lost, over a path that is up since ``up_s``."""
        assert self.timers is not None, "an outage has begun"
        found_s = self.timers.found_s(up_s)
        if self.cut and self.unheard:
            return self.timers.found_out_s(found_s, rtt_s)
        return found_s if self.cut else found_s + rtt_s
