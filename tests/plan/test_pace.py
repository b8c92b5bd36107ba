"""Step times: mean, spread, slow-downs, and that pieces of a step take what the step takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.plan.build import build_plan
from testbed.plan.model import DevicePlan, Plan, Series, from_json, to_json
from testbed.plan.pace import Pacer, longest_step_s, slowed_s
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES


def plan_of(*overrides: str) -> Plan:
    return build_plan(load(THREE_SITES, overrides), "simulate")


def test_measured_work_is_divided_by_the_speed_and_slowed_down() -> None:
    slowed = DevicePlan(speed=0.5, slowdown=Series(times_s=(0.0, 1.0), values=(1.0, 10.0)))
    pacer = Pacer(slowed, 1, "a/worker0")
    assert pacer.measured_s(0.25, 7.0) == pytest.approx(0.5)
    assert pacer.measured_s(0.05, 8.5) == pytest.approx(1.0)


def test_variation_has_the_mean_and_the_spread_that_were_asked_for() -> None:
    pacer = Pacer(DevicePlan(step_time_s=2.0, variation=0.5), 1, "a/worker0")
    steps = [pacer.duration_s(1, 0.0) for _ in range(20_000)]
    mean = math.fsum(steps) / len(steps)
    deviation = math.sqrt(math.fsum((step - mean) ** 2 for step in steps) / len(steps))
    assert mean == pytest.approx(2.0, rel=0.02)
    assert deviation / mean == pytest.approx(0.5, rel=0.05)


def test_draws_belong_to_seed_node_and_step() -> None:
    device = DevicePlan(variation=0.3)

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
    device = DevicePlan(step_time_s=1.0, variation=0.4)
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
    pacer = Pacer(DevicePlan(step_time_s=1.0, slowdown=series), 1, "n")
    assert pacer.duration_s(1, 100.0) == 1.0
    assert pacer.duration_s(1, 112.0) == 5.0


def test_a_scenario_says_it_per_device_site_and_worker_and_the_plan_carries_it() -> None:
    plan = plan_of(
        "device.variation=20 %",
        "data_centers[east].device.speed=0.25",
        "data_centers[west].worker_devices={worker0: {slowdown: [{at: 0 s, factor: 1}, {at: 5 s, factor: 10}]}}",
    )
    assert plan.node("hub/worker0").device == DevicePlan(step_time_s=0.1, variation=0.2)
    assert plan.node("east/worker1").device.step_time_s == pytest.approx(0.4)
    slowed = plan.node("west/worker0").device.slowdown
    assert slowed is not None
    assert (slowed.times_s, slowed.values) == ((0.0, 5.0), (1.0, 10.0))
    assert from_json(to_json(plan)) == plan


def test_deadlines_know_the_slowest_step() -> None:
    slow = DevicePlan(step_time_s=1.0, slowdown=Series(times_s=(0.0, 1.0), values=(1.0, 10.0)))
    assert longest_step_s(slow) == 10.0
    calm = plan_of("device.step_time=10 s").timeouts.step_deadline_s
    assert plan_of("device.step_time=10 s", "device.variation=50 %").timeouts.step_deadline_s > calm
