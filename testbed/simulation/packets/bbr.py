"""BBR (Cardwell, Cheng, Gunn, Hassas Yeganeh and Jacobson 2016), version 1 as Linux computes it (``tcp_bbr.c``).

The path is modelled by its rate, the maximum of delivery rates in ten round trips, and its least round-trip time of ten
seconds; what both hold together is the bandwidth-delay product (BDP). Segments are paced at a gain times the rate, and
at most two BDPs, and what bursts and gathered acknowledgements need, are under way.

startup    gain 2/ln 2, until the rate has not grown by a quarter in three round trips
drain      gain ln 2 / 2, until no more than a BDP is under way
probe      of the rate: gains 5/4, 3/4, and six times 1, a least round-trip time each
round trip  for 0.2 s four segments under way, if the least round-trip time has not been seen for ten seconds
policed    where two intervals with a fifth of losses have the same rate, that is kept for 48 round trips

Rates are in segments per second. A lost segment changes the window only until it is repaired.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from typing import Protocol

from testbed.simulation.packets.congestion import CongestionState
from testbed.simulation.packets.delivery_rate import DeliveryRate, RateSample, WindowedMaximum
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.tcp_model import LEAST_RTT_S

# as Linux rounds 2/ln 2 and its inverse
_HIGH_GAIN = 739 / 256
_DRAIN_GAIN = 88 / 256
_WINDOW_GAIN = 2.0
_CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_FIRST_PHASES = 7  # of which one is drawn to begin with: never that which drains
_MARGIN = 0.99  # of the estimated rate, so that queues drain in the end
_RATE_ROUNDS = 10
_FULL_GROWTH = 1.25
_FULL_ROUNDS = 3
_LEAST_WINDOW = 4
_FIRST_WINDOW = 10
_RTT_KEPT_S = 10.0
_PROBE_RTT_S = 0.2
_BURST_S = 1 / 1024  # what leaves at once (sk_pacing_shift)
_BURST_BYTES = 65_536 - 1 - 320  # GSO_LEGACY_MAX_SIZE, less the largest headers
_SMALL_RATE = 150_000  # bytes per second, below which segments leave one by one
_EXTRA_ROUNDS = 5
_EXTRA_S = 0.1
_POLICED_ROUNDS = 4
_POLICED_MOST_ROUNDS = 16
_POLICED_KEPT_ROUNDS = 48
_POLICED_LOSS = 50 / 256
_POLICED_NEAR = 1 / 8
_POLICED_NEAR_BYTES_PER_S = 500


class PacedState(CongestionState, Protocol):
    """A paced connection, as BBR sees it. ``paced_for_s``: how long the next burst has to wait."""

    @property
    def in_flight(self) -> int: ...
    @property
    def paced_for_s(self) -> float: ...


class Mode(Enum):
    """What the sender is doing."""

    STARTUP = 0
    DRAIN = 1
    PROBE_RATE = 2
    PROBE_RTT = 3


class Bbr:
    """The congestion control of one connection. It sets window and pacing rate by each acknowledgement.

    ``rtt_s``: of setting up the connection. ``random``: from which phase cycles begin.
    """

    __slots__ = (
        "_conserves", "_cycle", "_cycle_s", "_epoch_s", "_epoch_segments", "_extra", "_extra_rounds", "_full_rate",
        "_full_rounds", "_gain", "_in_recovery", "_mode", "_path_is_full", "_policer", "_prior_window",
        "_probe_ends_s", "_probe_round_done", "_random", "_rate", "_restarts", "_round_ends", "_round_starts",
        "_rounds", "_rtt_s", "_rtt_seen_s", "delivery", "pacing_bytes_per_s",
    )  # fmt: skip

    def __init__(self, rtt_s: float, window: int, now_s: float, random: Random) -> None:
        self._random = random
        self.delivery = DeliveryRate(now_s)
        self._rate = WindowedMaximum(_RATE_ROUNDS)
        self._rtt_s = rtt_s
        self._rtt_seen_s = now_s
        self._rounds = 0
        self._round_ends = 0
        self._round_starts = False
        self._mode = Mode.STARTUP
        self._gain = _HIGH_GAIN
        self._full_rate = 0.0
        self._full_rounds = 0
        self._path_is_full = False
        self._cycle = 0
        self._cycle_s = now_s
        self._probe_ends_s = math.inf
        self._probe_round_done = False
        self._restarts = False  # sending begins after nothing was under way
        self._prior_window = 0
        self._in_recovery = False
        self._conserves = False
        self._epoch_s = now_s
        self._epoch_segments = 0
        self._extra = [0.0, 0.0]
        self._extra_rounds = 0
        self._policer = Policer(self.delivery)
        self.pacing_bytes_per_s = self._paced(window / max(rtt_s, LEAST_RTT_S), _HIGH_GAIN)

    @staticmethod
    def _paced(rate: float, gain: float) -> float:
        return _MARGIN * gain * rate * SEGMENT_BYTES

    @property
    def burst_segments(self) -> int:
        """Segments that leave at once."""
        least = 1 if self.pacing_bytes_per_s < _SMALL_RATE else 2
        return max(least, int(min(self.pacing_bytes_per_s * _BURST_S, _BURST_BYTES) / SEGMENT_BYTES))

    @property
    def _estimate(self) -> float:
        return self._policer.rate or self._rate.value

    # ---- events -------------------------------------------------------------------------------------------------

    def resumed(self, of: CongestionState, now_s: float, idle_s: float) -> None:
        if not self.delivery.application_limited:
            return
        self._restarts = True
        self._epoch_s = now_s
        self._epoch_segments = 0
        if self._mode is Mode.PROBE_RATE:
            self._set_pacing(1.0)
        elif self._mode is Mode.PROBE_RTT:
            self._end_probe_of_rtt(of, now_s)

    def reduced(self, of: CongestionState) -> float:
        """Note the window, as losses are to be repaired. Return the threshold, which BBR does not use."""
        self._save_window(of)
        return of.threshold

    def timed_out(self, of: CongestionState, following: int) -> None:
        self._in_recovery = True
        self._full_rate = 0.0
        self._round_starts = True
        self._policer.sample(None, True, probes=False)

    def undone(self, of: CongestionState, prior_window: int) -> int:
        self._full_rate = 0.0
        self._full_rounds = 0
        self._policer.reset()
        return of.window

    def sampled(self, of: CongestionState, rtt_s: float, acknowledged: int, following: int) -> None:
        """Round-trip times come with rates."""

    def acknowledged(self, of: CongestionState, segments: int) -> None:
        """So does what is acknowledged."""

    # ---- the model of the path ----------------------------------------------------------------------------------

    def update(self, of: PacedState, sample: RateSample, repairs: bool) -> None:
        """Take what an acknowledgement tells. ``repairs``: whether losses are being repaired."""
        self._update_rate(sample)
        self._update_extra(of, sample)
        if self._mode is Mode.PROBE_RATE and self._phase_is_over(of, sample):
            self._next_phase()
        self._look_for_full_path(sample)
        self._drain(of)
        self._update_rtt(of, sample)
        self._gain = self._pacing_gain
        self._set_pacing(self._gain)
        self._set_window(of, sample, repairs)

    @property
    def _pacing_gain(self) -> float:
        if self._mode is Mode.PROBE_RATE:
            return 1.0 if self._policer.rate else _CYCLE[self._cycle]
        return {Mode.STARTUP: _HIGH_GAIN, Mode.DRAIN: _DRAIN_GAIN, Mode.PROBE_RTT: 1.0}[self._mode]

    def _update_rate(self, sample: RateSample) -> None:
        self._round_starts = False
        if sample.delivered < 0 or sample.interval_s <= 0:
            return
        if sample.prior_delivered >= self._round_ends:
            self._round_ends = self.delivery.delivered
            self._rounds += 1
            self._round_starts = True
            self._conserves = False
        if self._policer.sample(sample, self._round_starts, self._mode is Mode.PROBE_RATE):
            self._begin_probing()
        rate = sample.delivered / sample.interval_s
        if not sample.application_limited or rate >= self._rate.value:
            self._rate.add(self._rounds, rate)

    def _update_extra(self, of: PacedState, sample: RateSample) -> None:
        """Take note of what acknowledgements bring beyond what the rate explains, as they are gathered somewhere."""
        if sample.segments <= 0 or sample.delivered < 0 or sample.interval_s <= 0:
            return
        if self._round_starts:
            self._extra_rounds = min(31, self._extra_rounds + 1)
            if self._extra_rounds >= _EXTRA_ROUNDS:
                self._extra_rounds, self._extra = 0, [0.0, self._extra[0]]
        expected = self._estimate * (self.delivery.delivered_s - self._epoch_s)
        if self._epoch_segments <= expected:
            self._epoch_segments = 0
            self._epoch_s = self.delivery.delivered_s
            expected = 0.0
        self._epoch_segments += sample.segments
        self._extra[0] = max(self._extra[0], min(self._epoch_segments - int(expected), of.window))

    def _phase_is_over(self, of: PacedState, sample: RateSample) -> bool:
        lasted = self.delivery.delivered_s - self._cycle_s > self._rtt_s
        if self._gain == 1.0:
            return lasted
        under_way = self._in_network(of, sample.prior_in_flight)
        if self._gain > 1.0:
            return lasted and (sample.losses > 0 or under_way >= self._held(self._rate.value, self._gain))
        return lasted or under_way <= self._held(self._rate.value, 1.0)

    def _next_phase(self) -> None:
        self._cycle = (self._cycle + 1) % len(_CYCLE)
        self._cycle_s = self.delivery.delivered_s

    def _begin_probing(self) -> None:
        self._mode = Mode.PROBE_RATE
        self._cycle = len(_CYCLE) - 1 - self._random.randrange(_FIRST_PHASES)
        self._next_phase()

    def _look_for_full_path(self, sample: RateSample) -> None:
        if self._path_is_full or not self._round_starts or sample.application_limited:
            return
        if self._rate.value >= _FULL_GROWTH * self._full_rate:
            self._full_rate = self._rate.value
            self._full_rounds = 0
            return
        self._full_rounds += 1
        self._path_is_full = self._full_rounds >= _FULL_ROUNDS

    def _drain(self, of: PacedState) -> None:
        if self._mode is Mode.STARTUP and self._path_is_full:
            self._mode = Mode.DRAIN
        if self._mode is Mode.DRAIN and self._in_network(of, of.in_flight) <= self._held(self._rate.value, 1.0):
            self._begin_probing()

    def _update_rtt(self, of: PacedState, sample: RateSample) -> None:
        now = of.now_s
        expired = now > self._rtt_seen_s + _RTT_KEPT_S
        if sample.rtt_s >= 0 and (sample.rtt_s < self._rtt_s or expired):
            self._rtt_s = sample.rtt_s
            self._rtt_seen_s = now
        if expired and not self._restarts and self._mode is not Mode.PROBE_RTT:
            self._mode = Mode.PROBE_RTT
            self._save_window(of)
            self._probe_ends_s = math.inf
        if self._mode is Mode.PROBE_RTT:
            self.delivery.limit(of.in_flight)
            if self._probe_ends_s == math.inf and of.in_flight <= _LEAST_WINDOW:
                self._probe_ends_s = now + _PROBE_RTT_S
                self._probe_round_done = False
                self._round_ends = self.delivery.delivered
            elif self._probe_ends_s < math.inf:
                self._probe_round_done = self._probe_round_done or self._round_starts
                if self._probe_round_done:
                    self._end_probe_of_rtt(of, now)
        if sample.delivered > 0:
            self._restarts = False

    def _end_probe_of_rtt(self, of: CongestionState, now_s: float) -> None:
        if now_s <= self._probe_ends_s:
            return
        self._rtt_seen_s = now_s
        of.window = max(of.window, self._prior_window)
        if self._path_is_full:
            self._begin_probing()
        else:
            self._mode = Mode.STARTUP

    # ---- what follows from it -----------------------------------------------------------------------------------

    def _held(self, rate: float, gain: float) -> int:
        """Return how many segments are to be under way: a gain times the BDP, and what bursts need."""
        return self._with_bursts(math.ceil(rate * self._rtt_s * gain - 1e-6))

    def _with_bursts(self, segments: int) -> int:
        segments += 3 * self.burst_segments
        segments += segments % 2  # every second one is acknowledged
        return segments + 2 if self._mode is Mode.PROBE_RATE and self._cycle == 0 else segments

    def _in_network(self, of: PacedState, in_flight: int) -> int:
        """Return how many segments will be under way when the next one leaves."""
        if self._gain > 1.0:
            in_flight += self.burst_segments
        return max(0, in_flight - int(self._estimate * of.paced_for_s))

    def _set_pacing(self, gain: float) -> None:
        rate = self._paced(self._estimate, gain)
        if self._path_is_full or rate > self.pacing_bytes_per_s:
            self.pacing_bytes_per_s = rate

    def _save_window(self, of: CongestionState) -> None:
        if self._in_recovery or self._mode is Mode.PROBE_RTT:
            self._prior_window = max(self._prior_window, of.window)
        else:
            self._prior_window = of.window

    def _set_window(self, of: PacedState, sample: RateSample, repairs: bool) -> None:
        if sample.segments:
            window = max(of.window - sample.losses, 1) if sample.losses else of.window
            if repairs and not self._in_recovery:  # one round trip sends as many as arrive
                self._conserves = True
                self._round_ends = self.delivery.delivered
                window = of.in_flight + sample.segments
            elif self._in_recovery and not repairs:
                window, self._conserves = max(window, self._prior_window), False
            self._in_recovery = repairs
            if self._conserves:
                window = max(window, of.in_flight + sample.segments)
            else:
                window = self._grown(window, sample.segments)
            of.window = window
        if self._mode is Mode.PROBE_RTT:
            of.window = min(of.window, _LEAST_WINDOW)

    def _grown(self, window: int, acknowledged: int) -> int:
        gain = {Mode.PROBE_RATE: _WINDOW_GAIN, Mode.PROBE_RTT: 1.0}.get(self._mode, _HIGH_GAIN)
        target = math.ceil(self._estimate * self._rtt_s * gain - 1e-6)
        if self._path_is_full:
            target += int(min(max(self._extra), self._estimate * _EXTRA_S))
        target = self._with_bursts(target)
        if self._path_is_full:
            window = min(window + acknowledged, target)
        elif window < target or self.delivery.delivered < _FIRST_WINDOW:
            window += acknowledged
        return max(window, _LEAST_WINDOW)


class Policer:
    """Finds out whether a policer drops what is above some rate. ``rate``: that one; 0: there is none."""

    __slots__ = (
        "_begin_delivered", "_begin_lost", "_begin_s", "_delivery", "_lost", "_rate", "_rounds", "_samples", "rate",
    )  # fmt: skip

    def __init__(self, delivery: DeliveryRate) -> None:
        self._delivery = delivery
        self._lost = 0
        self.reset()

    def reset(self) -> None:
        self.rate = self._rate = 0.0
        self._samples = False
        self._begin()

    def _begin(self) -> None:
        self._begin_s = self._delivery.delivered_s
        self._begin_delivered = self._delivery.delivered
        self._begin_lost = self._lost
        self._rounds = 0

    def sample(self, sample: RateSample | None, round_starts: bool, probes: bool) -> bool:
        """Take a sample; None after a timeout. Return whether the rate that was found has been used for long enough."""
        if sample is not None:
            self._lost = sample.lost
        losses = sample is None or sample.losses > 0
        if self.rate:
            self._rounds += probes and round_starts
            over = self._rounds >= _POLICED_KEPT_ROUNDS
            if over:
                self.reset()
            return over
        if not self._samples:
            if not losses:
                return False
            self._begin()
            self._samples = True
        self._rounds += round_starts
        if (sample is not None and sample.application_limited) or self._rounds > _POLICED_MOST_ROUNDS:
            self.reset()
        elif self._rounds >= _POLICED_ROUNDS and losses:
            self._end()
        return False

    def _end(self) -> None:
        delivered = self._delivery.delivered - self._begin_delivered
        lost = self._lost - self._begin_lost
        lasted_s = self._delivery.delivered_s - self._begin_s
        if not delivered or lost < _POLICED_LOSS * delivered or lasted_s < 1e-3:
            return
        rate = delivered / lasted_s
        difference = abs(rate - self._rate)
        if self._rate and (
            difference <= _POLICED_NEAR * self._rate or difference * SEGMENT_BYTES <= _POLICED_NEAR_BYTES_PER_S
        ):
            self.rate = (rate + self._rate) / 2
            self._rounds = 0
            return
        self._rate = rate
        self._begin()
