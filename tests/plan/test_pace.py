"""Step times and their pieces; the slowest stretch of a trace; when a data centre counts as lost."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.plan.build import build_plan
from testbed.plan.model import Plan, from_json, to_json
from testbed.plan.pace import Pacer, longest_step_s, slowed_s
from testbed.plan.silence import silences
from testbed.plan.timeouts import slowest_mean
from testbed.scenario.load import load
from testbed.settings.job import Device
from testbed.settings.series import Series
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each


def plan_of(*overrides: str) -> Plan:
    return build_plan(load(THREE_SITES, overrides), "simulate")


def test_measured_work_is_divided_by_the_speed_and_slowed_down() -> None:
    slowed = Device(speed=0.5, slowdown=Series(times_s=(0.0, 1.0), values=(1.0, 10.0)))
    pacer = Pacer(slowed, 1, "a/worker0")
    assert pacer.measured_s(0.25, 7.0) == pytest.approx(0.5)
    assert pacer.measured_s(0.05, 8.5) == pytest.approx(1.0)


def test_variation_has_the_mean_and_the_spread_that_were_asked_for() -> None:
    pacer = Pacer(Device(step_time_s=2.0, variation=0.5), 1, "a/worker0")
    steps = [pacer.duration_s(1, 0.0) for _ in range(20_000)]
    mean = math.fsum(steps) / len(steps)
    deviation = math.sqrt(math.fsum((step - mean) ** 2 for step in steps) / len(steps))
    assert mean == pytest.approx(2.0, rel=0.02)
    assert deviation / mean == pytest.approx(0.5, rel=0.05)


def test_draws_belong_to_seed_node_and_step() -> None:
    device = Device(variation=0.3)

    def draws(seed: int, node: str) -> list[float]:
        pacer = Pacer(device, seed, node)
        return [pacer.duration_s(1, 0.0) for _ in range(5)]

    assert draws(1, "a/worker0") == draws(1, "a/worker0")
    assert draws(1, "a/worker0") != draws(1, "a/worker1")
    assert draws(1, "a/worker0") != draws(2, "a/worker0")
    resumed = Pacer(device, 1, "a/worker0")
    resumed.load_state({"steps": 3.0})
    assert resumed.duration_s(1, 0.0) == draws(1, "a/worker0")[3]


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.integers(0, 5))
def test_pieces_of_a_step_take_what_the_step_takes(weights: list[float], steps_before: int) -> None:
    device = Device(step_time_s=1.0, variation=0.4)
    whole, cut = Pacer(device, 1, "n"), Pacer(device, 1, "n")
    whole.load_state({"steps": steps_before})
    cut.load_state({"steps": steps_before})
    pieces = [cut.duration_s(weight / math.fsum(weights), 0.0) for weight in weights]
    assert math.fsum(pieces) == pytest.approx(whole.duration_s(1, 0.0))


def test_a_slow_down_counts_from_the_first_step_and_may_begin_inside_one() -> None:
    series = Series(times_s=(0.0, 10.0, 20.0), values=(1.0, 5.0, 1.0))
    assert slowed_s(1.0, series, 3.0) == 1.0
    assert slowed_s(1.0, series, 10.0) == 5.0
    assert slowed_s(2.0, series, 9.0) == 1.0 + 5.0
    assert slowed_s(4.0, series, 9.0) == 1.0 + 10.0 + 1.0
    pacer = Pacer(Device(step_time_s=1.0, slowdown=series), 1, "n")
    assert pacer.duration_s(1, 100.0) == 1.0
    assert pacer.duration_s(1, 112.0) == 5.0


def test_a_scenario_says_it_per_device_site_and_worker_and_the_plan_carries_it() -> None:
    plan = plan_of(
        "device.variation=20 %",
        "data_centers[east].device.speed=0.25",
        "data_centers[west].worker_devices={worker0: {slowdown: [{at: 0 s, factor: 1}, {at: 5 s, factor: 10}]}}",
    )
    assert plan.node("hub/worker0").device == Device(pace="paced", step_time_s=0.1, variation=0.2)
    assert plan.node("east/worker1").device.step_time_s == pytest.approx(0.4)
    slowed = plan.node("west/worker0").device.slowdown
    assert slowed is not None
    assert (slowed.times_s, slowed.values) == ((0.0, 5.0), (1.0, 10.0))
    assert from_json(to_json(plan)) == plan


def test_deadlines_know_the_slowest_step() -> None:
    slow = Device(step_time_s=1.0, slowdown=Series(times_s=(0.0, 1.0), values=(1.0, 10.0)))
    assert longest_step_s(slow) == 10.0
    calm = plan_of("device.step_time=10 s").timeouts.step_deadline_s
    assert plan_of("device.step_time=10 s", "device.variation=50 %").timeouts.step_deadline_s > calm


@for_each(
    ("series", "window", "slowest"),
    [
        (Series(times_s=(0.0, 5.0), values=(20.0, 1.0)), 30.0, 1.0),  # it stays
        (Series(times_s=(0.0, 9.0), values=(10.0, 0.0), period_s=10.0), 30.0, 9.0),  # an outage of 1 s in 10
        (Series(times_s=(0.0, 9.0), values=(10.0, 0.0), period_s=10.0), 4.0, 7.5),
        (Series(times_s=(0.0, 100.0), values=(10.0, 2.0), period_s=200.0), 30.0, 2.0),
        (Series(times_s=(0.0, 1.0), values=(0.0, 10.0), period_s=5.0), 2.0, 5.0),  # across the seam: 8.0 is not least
        (Series(times_s=(0.0,), values=(7.0,)), 30.0, 7.0),
    ],
)
def test_worked_out(series: Series, window: float, slowest: float) -> None:
    assert slowest_mean(series, window) == pytest.approx(slowest)


@for_each("after_s", [0.0, 0.5, 1.0, 3.9, 4.0, 5.5, 6.0, 1e6 + 0.1 * 3])
def test_segments_from_anywhere_are_those_from_the_beginning(after_s: float) -> None:
    """What repeats begins within a segment."""
    series = Series(times_s=(0.0, 1.0, 3.0), values=(7.0, 8.0, 9.0), period_s=2.0, repeats_from_s=2.0)
    assert list(islice(series.segments(), 6)) == [
        (0.0, 1.0, 7.0),
        (1.0, 3.0, 8.0),
        (3.0, 4.0, 9.0),
        (4.0, 5.0, 8.0),
        (5.0, 6.0, 9.0),
        (6.0, 7.0, 8.0),
    ]
    begin_s, end_s, value = next(series.segments(after_s))
    assert begin_s <= after_s < end_s
    assert value == (7.0 if after_s < 1 else 8.0 if after_s < 3 or after_s % 2 < 1 else 9.0)


@given(st.floats(0.001, 10), st.integers(0, 10**6))
@example(8.837638681061978, 29)
def test_where_a_lap_ends_the_next_begins_whatever_is_rounded(period_s: float, lap: int) -> None:
    series = Series(times_s=(0.0, period_s / 3), values=(1.0, 2.0), period_s=period_s)
    two = list(islice(series.segments(lap * period_s), 5))
    assert all(before[1] == after[0] for before, after in pairwise(two))
    begin_s, end_s, value = next(series.segments(lap * period_s))
    assert (begin_s, value) == (lap * period_s, 1.0) and end_s > begin_s


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=8),
    st.integers(1, 20),
    st.booleans(),
)
def test_against_every_window(steps: list[tuple[int, int]], window: int, loops: bool) -> None:
    times = [sum(length for length, _ in steps[:index]) for index in range(len(steps))]
    length = sum(duration for duration, _ in steps)
    period = float(length) if loops else math.inf
    series = Series(times_s=tuple(map(float, times)), values=tuple(float(v) for _, v in steps), period_s=period)
    seconds = [value for duration, value in steps for _ in range(duration)]
    seconds = seconds * (window // length + 2) if loops else seconds + [seconds[-1]] * window
    every = [sum(seconds[at : at + window]) / window for at in range(len(seconds) - window + 1)]
    assert slowest_mean(series, float(window)) == pytest.approx(min(every))


QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def plan_with(outages: dict[str, tuple[float, float]]) -> Plan:
    """The quickstart with links that are down from the one time to the other, in multiples of ``dead_after_s``."""
    plan = build_plan(load(QUICKSTART), "simulate")
    patience_s = plan.timeouts.dead_after_s
    links = [
        replace(link, state_trace=_down(*(each * patience_s for each in outages[link.name])))
        if link.name in outages
        else link
        for link in plan.network.links
    ]
    return replace(plan, network=replace(plan.network, links=tuple(links)))


def _down(begin_s: float, end_s: float) -> Series:
    return Series(times_s=(0.0, begin_s, end_s), values=(1.0, 0.0, 1.0))


def found(outages: dict[str, tuple[float, float]]) -> list[tuple[float, str]]:
    plan = plan_with(outages)
    return [(time_s / plan.timeouts.dead_after_s, site) for time_s, site in silences(plan)]


def ways() -> tuple[str, str]:
    """The links of the first data centre without the scheduler, to the scheduler's and back."""
    plan = plan_with({})
    home = plan.with_role("scheduler")[0].data_center
    site = next(site.name for site in plan.network.sites if site.name != home)
    return plan.network.routes[f"{site}>{home}"][0], plan.network.routes[f"{home}>{site}"][0]


def test_an_outage_that_is_shorter_than_patience_is_none() -> None:
    there, back = ways()
    assert found({there: (1.0, 1.9)}) == []
    assert found({there: (1.0, 1.9), back: (2.0, 2.9)}) == []


def test_a_longer_one_is_told_when_patience_ends() -> None:
    there, _ = ways()
    ((at, site),) = found({there: (1.0, 2.5)})
    assert at == pytest.approx(2.0) and there.startswith(f"{site}>")


def test_rates_of_0_that_repeat_are_outages_over_the_end_of_their_period() -> None:
    there, _ = ways()
    plan = plan_with({})
    patience_s = plan.timeouts.dead_after_s
    rates = Series(times_s=(0.0, 0.6 * patience_s, 2 * patience_s), values=(0.0, 1e6, 0.0), period_s=2.5 * patience_s)
    links = tuple(replace(link, rate_trace=rates) if link.name == there else link for link in plan.network.links)
    ((at_s, _),) = silences(replace(plan, network=replace(plan.network, links=links)))
    assert at_s == pytest.approx(3 * patience_s)


def test_outages_that_overlap_are_one() -> None:
    there, back = ways()
    assert [at for at, _ in found({there: (1.0, 1.6), back: (1.5, 2.2)})] == [pytest.approx(2.0)]
