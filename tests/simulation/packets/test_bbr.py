"""BBR packet by packet: its samples of the rate, and what a connection does with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from testbed.simulation.packets.bbr import DRAIN, PROBE_RATE, STARTUP, reset_policer, sample_policer
from testbed.simulation.packets.congestion import BBR
from testbed.simulation.packets.delivery_rate import (
    RateSample,
    add_rate,
    begin_delivery,
    limit_by_application,
    note_delivered,
    rate_sample,
    take_delivered,
)
from testbed.simulation.packets.records import Connection, Network, Segment
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES
from testbed.simulation.packets.sender import OPEN, note_paced
from testbed.simulation.tcp_model import TcpModel
from tests.for_each import for_each
from tests.simulation.packets.pair import Pair

MODEL = TcpModel(congestion_control="bbr", unsent_limit_bytes=131_072)
FRAME_BITS = 8 * (SEGMENT_BYTES + HEADER_BYTES)


def watch(pair: Pair, every_s: float, look: Callable[[], None], until_s: float, from_s: float = 0.5) -> None:
    def again(_: Any) -> None:
        look()
        if pair.clock.now < until_s:
            pair.clock.at(pair.clock.now + every_s, again)

    pair.clock.at(from_s, again)


def rates() -> Connection:
    """A connection of a least round-trip time of 0.1 s, of which nothing has been delivered."""
    it = Connection(least_s=0.1)
    begin_delivery(it, 0.0)
    return it


def sent(it: Connection, number: int, at_s: float, out: int) -> Segment:
    segment = Segment(number=number, size_bytes=SEGMENT_BYTES, sent_s=at_s)
    it.first = 0
    it.following = out
    note_delivered(it, segment, at_s)
    return segment


def sampled(it: Connection, now_s: float) -> RateSample:
    return rate_sample(it, now_s, 1, 0, 2, 0.1)


def test_a_sample_is_what_was_delivered_since_a_segment_was_sent() -> None:
    it = rates()
    first = sent(it, 0, 1.0, 0)
    second = sent(it, 1, 1.01, 1)
    take_delivered(it, first)
    assert sampled(it, 1.1)[3:5] == (1, pytest.approx(0.1))
    take_delivered(it, second)
    # 0.11 s in which both were acknowledged, and 0.01 s in which they were sent: the longer one counts
    assert sampled(it, 1.11)[3:5] == (2, pytest.approx(0.11))
    take_delivered(it, sent(it, 2, 2.0, 0))
    assert sampled(it, 2.05).interval_s == -1.0, "less than the least round-trip time is no sample"


def test_a_sample_of_what_nothing_follows_tells_of_the_program() -> None:
    it = rates()
    limit_by_application(it, in_flight=1)
    take_delivered(it, sent(it, 0, 1.0, 0))
    assert sampled(it, 1.1).application_limited
    take_delivered(it, sent(it, 1, 1.1, 0))
    assert sampled(it, 1.2).application_limited, "sent while nothing followed"
    take_delivered(it, sent(it, 2, 1.2, 0))
    assert not sampled(it, 1.3).application_limited


def test_a_maximum_is_forgotten_after_its_window() -> None:
    it = Connection()
    for number, value in ((0, 5.0), (1, 9.0), (4, 7.0), (8, 6.0)):
        add_rate(it, number, value, 10)
    assert it.best_rate == 9.0
    add_rate(it, 12, 1.0, 10)
    assert it.best_rate == 7.0, "the best one since"
    add_rate(it, 30, 2.0, 10)
    assert it.best_rate == 2.0


def test_a_pacer_makes_up_for_half_a_pause_at_most() -> None:
    net = Network()
    it = Connection(control=BBR, pacing_bytes_per_s=1000.0, pacer_s=-math.inf)

    def paced_s(now_s: float, segments: int, size_bytes: int) -> float:
        net.now = now_s
        note_paced(net, it, segments, size_bytes)
        return it.pacer_s

    assert paced_s(1.0, 9, 9 * 1448) == 1.0, "the first ten segments are not paced"
    assert paced_s(1.0, 2, 1000) == 2.0
    assert paced_s(2.25, 2, 1000) == 3.0, "it was a quarter late"
    assert paced_s(9.0, 2, 1000) == 9.5


def test_it_fills_the_path_and_then_its_queue_is_drained() -> None:
    pair, backlog = Pair(20e6, 0.02, 10**6, MODEL), list[tuple[float, int]]()
    modes: dict[int, float] = {}

    def look() -> None:
        modes.setdefault(pair.sender.mode, pair.clock.now)
        backlog.append((pair.clock.now, pair.there.backlog_bytes))

    watch(pair, 0.01, look, until_s=5.0, from_s=0.13)
    pair.send(0.0, ("all", 20_000_000))
    pair.clock.finish()
    assert list(modes) == [STARTUP, DRAIN, PROBE_RATE]
    bdp_bytes = 20e6 / 8 * 0.04
    assert max(size for _, size in backlog) == pytest.approx(2 * bdp_bytes, rel=0.25), "2.89 BDPs are under way"
    assert modes[DRAIN] < 0.8
    # probing, a fifth of a BDP waits on average; what headers take and the first second cost 3 %
    assert sum(size for at_s, size in backlog if at_s > 2) / sum(at_s > 2 for at_s, _ in backlog) < bdp_bytes / 2
    assert pair.arrivals["all"] == pytest.approx(20_000_000 / SEGMENT_BYTES * FRAME_BITS / 20e6, rel=0.05)
    assert pair.sender.best_rate * FRAME_BITS == pytest.approx(20e6, rel=0.01)


def test_every_ten_seconds_it_looks_for_the_least_round_trip_time() -> None:
    pair, least = Pair(20e6, 0.02, 10**6, MODEL), list[float]()
    watch(pair, 0.01, lambda: least.append(pair.clock.now) if pair.sender.window <= 4 else None, until_s=12.0)
    pair.send(0.0, ("all", 30_000_000))
    pair.clock.finish()
    assert 10.0 < least[0] < 10.5
    assert 0.2 <= least[-1] - least[0] < 0.35


def test_what_follows_a_pause_is_sent_at_the_rate_that_was_found() -> None:
    pair = Pair(20e6, 0.02, 10**6, MODEL)
    pair.send(0.0, ("first", 2_000_000))
    pair.send(8.0, ("second", 300_000))
    pair.clock.finish()
    # the shaper's bucket lets the first 11 kB pass at once
    took_s = (300_000 / SEGMENT_BYTES * FRAME_BITS - 8 * 11_514) / 20e6
    assert pair.arrivals["second"] - 8.0 == pytest.approx(0.02 + took_s, rel=0.03)


def test_single_losses_do_not_slow_it_down() -> None:
    took_s = []
    for every in (10**9, 50):
        pair = Pair(20e6, 0.02, 10**6, MODEL, lose=lambda number, every=every: number % every == 0)
        pair.send(0.0, ("all", 5_000_000))
        pair.clock.finish()
        took_s.append(pair.arrivals["all"])
    assert took_s[1] == pytest.approx(took_s[0] / 0.98, rel=0.06)


def test_after_a_repair_the_window_is_what_it_was() -> None:
    pair, seen = Pair(20e6, 0.02, 10**6, MODEL, lose=lambda number: 1500 <= number < 1540), list[tuple[bool, int]]()
    watch(pair, 1e-3, lambda: seen.append((pair.sender.recovery == OPEN, pair.sender.window)), until_s=3.0)
    pair.send(0.0, ("all", 5_000_000))
    pair.clock.finish()
    begins = next(number for number, (whole, _) in enumerate(seen) if not whole)
    ends = next(number for number, (whole, _) in enumerate(seen) if whole and number > begins)
    before, after = seen[begins - 1][1], seen[ends][1]
    assert min(window for _, window in seen[begins:ends]) < 0.8 * before, "as many are sent as arrive"
    assert after >= 0.95 * before


@for_each(("losses", "found"), [(6, True), (1, False)])
def test_a_policer_is_found_by_equal_rates_and_many_losses(losses: int, found: bool) -> None:
    """Of 20 segments a round trip of 0.1 s, so many are lost; a fifth counts as many."""
    it = Connection(round_starts=True)
    begin_delivery(it, 0.0)
    reset_policer(it)
    forgotten: list[int] = []
    for number in range(62):
        it.delivered += 20 - losses
        it.delivered_s = 0.1 * number
        it.lost_in_all += losses
        if sample_policer(it, losses > 0, application_limited=False, probes=True):
            forgotten.append(number)
        assert it.policed_rate == (pytest.approx(140) if found and 7 <= number < 55 else 0), number
    assert forgotten == ([55] if found else []), "after 48 round trips"


def test_after_an_outage_the_rate_is_still_known() -> None:
    pair = Pair(20e6, 0.02, 100_000, MODEL)
    pair.send(0.0, ("first", 2_000_000))
    pair.clock.at(3.0, lambda _: pair.up(False))
    pair.send(3.1, ("during", 200_000))
    pair.clock.at(4.0, lambda _: pair.up(True))
    pair.send(20.0, ("after", 300_000))
    pair.clock.finish()
    assert 4.0 < pair.arrivals["during"] < 10.0
    assert pair.arrivals["after"] - 20.0 < 0.02 + 1.05 * 300_000 / SEGMENT_BYTES * FRAME_BITS / 20e6
