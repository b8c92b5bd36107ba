"""Faults become data of the Plan: whom they hit, when, and what that makes of links and devices."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import pytest

from testbed.errors import ScenarioError
from testbed.plan.effects import overlaid
from testbed.plan.fault_clock import FaultClock
from testbed.plan.model import FaultPlan, Plan, from_json, to_json
from testbed.plan.silence import silences
from testbed.settings.series import Series
from tests.faults.runs import faults, plan_of
from tests.for_each import for_each

AT = "at: 5 s"


def targets(text: str) -> list[tuple[str, ...]]:
    return [fault.targets for fault in plan_of(faults(text)).faults]


def link(plan: Plan, name: str) -> object:
    return next(link for link in plan.network.links if link.name == name)


@for_each(
    ("text", "hit"),
    [
        (f"kind: kill, node: east/worker1, {AT}", ["east/worker1"]),
        (f"kind: kill, node: '*/server0', {AT}", ["hub/server0", "east/server0", "west/server0"]),
        (f"kind: pause, data_center: west, {AT}, for: 1 s", ["west/worker0", "west/server0"]),
        (f"kind: slow, data_center: west, {AT}, for: 1 s, factor: 2", ["west/worker0"]),
        ("kind: disk_full, node: hub/*, round: 3", None),
        (f"kind: down, link: hub>east, {AT}", ["hub>east"]),
        (f"kind: down, link: hub<>east, {AT}", ["hub>east", "east>hub"]),
        (f"kind: down, data_center: west, {AT}", ["hub>west", "west>hub", "east>west", "west>east"]),
    ],
)
def test_whom_it_hits(text: str, hit: list[str] | None) -> None:
    if hit is None:
        with pytest.raises(ScenarioError, match="this run keeps none"):
            targets(text)
    else:
        assert targets(text) == [tuple(hit)]


@for_each(
    ("text", "says"),
    [
        (f"kind: kill, node: est/worker1, {AT}", r"\[0\].node: no node matches 'est/worker1'.*mean 'east/worker1'"),
        (f"kind: kill, data_center: wst, {AT}", r"no data centre named 'wst' \(did you mean 'west'\?\)"),
        (
            f"kind: down, link: hub-west, {AT}",
            r"no link matches 'hub-west' \(did you mean 'hub<>west', both directions, or 'hub>west'\?\)",
        ),
        (f"kind: down, link: hub<>wets, {AT}", r"no link matches 'hub<>wets' \(did you mean 'hub<>west'\?\)"),
        (f"kind: down, link: tokyo, {AT}", r"matches 'tokyo' \(one of .*hub>west.*; '\w+<>\w+' is both directions\)"),
        (f"kind: down, between: [hub, west], {AT}", "between: unknown key .write 'link: A<>B' for both directions"),
        (f"kind: down, link: hub>wets, {AT}", r"no link matches 'hub>wets' \(did you mean 'hub>west'\?\)"),
        ("kind: nan, node: east/server0, round: 3", r"no node matches 'east/server0'"),
        (
            f"kind: slow, node: '*/server0', {AT}, for: 1 s, factor: 2",
            r"no node matches '\*/server0' \(one of hub/worker0, east/worker0, east/worker1, west/worker0\)$",
        ),
        (f"kind: kill, node: '*/worker*', pick: 9, {AT}", r"\[0\]\.pick: 9 of the \d that match \(write at most \d\)"),
    ],
)
def test_a_fault_that_hits_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of(faults(text))


def test_a_fault_that_nothing_here_can_have_says_so() -> None:
    alone = ("topology={data_centers: [{name: hub, central: true, workers: 2}]}",)
    for target in ("data_center: hub", "link: 'hub>*'"):
        with pytest.raises(ScenarioError, match=r"this run has no link that a fault of kind 'down' can hit"):
            plan_of(faults(f"kind: down, {target}, {AT}"), *alone)
    master = "topology.data_centers[hub].workers=0"
    with pytest.raises(ScenarioError, match=r"data_center: 'hub' has no node that a fault of kind 'slow' can hit"):
        plan_of(faults(f"kind: slow, data_center: hub, {AT}, for: 1 s, factor: 2"), master)
    with pytest.raises(ScenarioError, match=r"from the start; hub/worker0 provides the first values"):
        plan_of(faults(f"kind: join, node: '*', {AT}"), master, "recovery={on_failure: continue}")
    with pytest.raises(ScenarioError, match="hub/worker0 provides the first values"):  # it starts with its server
        plan_of(faults(f"kind: join, node: hub/server0, {AT}"), "recovery={on_failure: continue}")


def test_global_server_and_scheduler_are_indispensable_where_the_others_go_on() -> None:
    for node in ("hub/global0", "hub/scheduler", "hub/*"):
        with pytest.raises(ScenarioError, match="the run cannot continue without"):
            plan_of(faults(f"kind: kill, node: {node}, {AT}"), "recovery={on_failure: continue}")


def test_the_seed_draws_moments_and_victims() -> None:
    text = "kind: kill, node: '*/worker*', pick: 1, sometime: {from: 5 s, to: 20 s}"
    plans = [plan_of(faults(text), f"seed={seed}") for seed in (1, 1, *range(2, 12))]
    drawn = [(plan.faults[0].at_s, plan.faults[0].targets) for plan in plans]
    assert drawn[0] == drawn[1]
    assert len({at_s for at_s, _ in drawn[1:]}) == 11 and len({who for _, who in drawn}) > 1
    assert all(at_s is not None and 5 <= at_s < 20 and len(who) == 1 for at_s, who in drawn)


def test_it_happens_again_and_again() -> None:
    plan = plan_of(faults("kind: down, link: hub>east, at: 2 s, for: 1 s, every: 3 s, times: 3"))
    assert [fault.at_s for fault in plan.faults] == [2, 5, 8]
    assert link(plan, "hub>east").state_trace == Series(  # type: ignore[attr-defined]
        times_s=(0, 2, 3, 5, 6, 8, 9), values=(1, 0, 1, 0, 1, 0, 1), source="down"
    )
    assert link(plan, "east>hub").state_trace is None  # type: ignore[attr-defined]


@for_each(
    ("text", "trace", "value"),
    [
        ("kind: corrupt, share: 10 %", "corruption_trace", 0.1),
        ("kind: duplicate, share: 10 %", "duplication_trace", 0.1),
        ("kind: reorder, share: 25 %", "reordering_trace", 0.25),
        ("kind: loss, loss: 10 %, burst: 8", "burst_trace", 8.0),
        ("kind: loss, loss: 10 %, burst: 8", "loss_trace", 0.1),
    ],
)
def test_what_happens_to_packets_ends_as_the_link_was(text: str, trace: str, value: float) -> None:
    plan = plan_of(faults(f"{text}, link: hub>east, at: 2 s, for: 1 s"), "run.on=emulate", on="emulate")
    usual = 1.0 if trace == "burst_trace" else 0.0
    series = getattr(link(plan, "hub>east"), trace)
    assert (series.times_s, series.values) == ((0, 2, 3), (usual, value, usual))
    assert getattr(link(plan, "east>hub"), trace) is None


@for_each(
    ("text", "on", "says"),
    [
        ("kind: duplicate, share: 1 %", "simulate", "in virtual time packets come once and in order"),
        ("kind: reorder, share: 1 %", "simulate", "in virtual time packets come once and in order"),
        ("kind: corrupt, share: 1 %", "local", "hit links, and loopback has none"),
        ("kind: corrupt", "simulate", "'corrupt' needs 'share'"),
        ("kind: corrupt, share: 1 %, burst: 3", "simulate", "burst: has no effect on 'corrupt'"),
        ("kind: loss, loss: 1 %, share: 3 %", "simulate", "share: has no effect on 'loss'"),
    ],
)
def test_what_means_nothing_there_is_refused(text: str, on: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of(faults(f"{text}, link: hub>east, {AT}"), f"run.on={on}", on=on)


def test_slow_multiplies_and_ends() -> None:
    plan = plan_of(faults("kind: slow, node: west/worker0, at: 2 s, for: 1 s, factor: 3"))
    assert plan.node("west/worker0").device.slowdown == Series(times_s=(0, 2, 3), values=(1, 3, 1), source="slow")


def test_a_plan_with_faults_survives_json() -> None:
    plan = plan_of(faults(f"kind: kill, node: east/worker1, {AT}", "kind: pause, node: '*', round: 3, for: 2 s"))
    assert from_json(to_json(plan)) == plan


def test_a_series_that_repeats_goes_on_to_repeat_after_a_fault() -> None:
    base = Series(times_s=(0, 1), values=(10, 20), period_s=2)
    fault = FaultPlan(kind="rate", targets=("hub>east",), at_s=2.5, for_s=1.0, value=5.0)
    series = overlaid(base, 0.0, [fault], lambda own, active: min(own, *(each.value for each in active), math.inf))
    assert series is not None
    found = [(begin_s, value) for begin_s, _, value in islice(series.segments(), 9)]
    assert found == [(0, 10), (1, 20), (2, 10), (2.5, 5), (3.5, 20), (4, 10), (5, 20), (6, 10), (7, 20)]
    assert next(series.segments(1e6 + 1.5)) == (1e6 + 1, 1e6 + 2, 20)


def test_a_fault_for_good_holds_in_every_lap() -> None:
    base = Series(times_s=(0, 1), values=(10, 20), period_s=2)
    fault = FaultPlan(kind="rate", targets=("hub>east",), at_s=2.5, value=15.0)
    series = overlaid(base, 0.0, [fault], lambda own, active: min(own, *(each.value for each in active), math.inf))
    assert series is not None
    assert [value for _, _, value in islice(series.segments(), 7)] == [10, 20, 10, 15, 10, 15, 10]
    one = overlaid(base, 0.0, [replace(fault, value=5.0)], lambda own, active: active[0].value if active else own)
    assert one == Series(times_s=(0, 1, 2, 2.5), values=(10, 20, 10, 5), source="rate")


def test_a_fault_that_needs_too_many_points_is_refused_with_a_cure() -> None:
    base = Series(times_s=tuple(map(float, range(1000))), values=(1.0, 2.0) * 500, period_s=1000.0, source="fine.csv")
    fault = FaultPlan(kind="rate", targets=("hub>east",), at_s=2e6, for_s=1.0, value=0.5)
    with pytest.raises(ScenarioError, match=r"lap 2001 of the trace 'fine.csv'.*--resample"):
        overlaid(base, 0.0, [fault], lambda own, active: 0.5 if active else own)


def test_the_clock_tells_beginnings_and_ends_once() -> None:
    pause = "kind: pause, node: west/worker0, at: 2 s, for: 1 s"
    plan = plan_of(faults(pause, "kind: kill, node: east/worker1, round: 3"))
    clock = FaultClock(plan)
    assert clock.due_s == math.inf
    clock.started(10.0)
    clock.started(99.0)
    assert clock.due_s == 12.0 and list(clock.take(11.9)) == []
    assert [(due.fault.kind, due.begins) for due in clock.take(12.0)] == [("pause", True)]
    clock.finished(2, 12.5)
    clock.finished(3, 12.7)
    clock.finished(3, 12.8)
    assert [(due.fault.kind, due.planned_s) for due in clock.take(12.7)] == [("kill", 12.7)]
    assert [(due.fault.kind, due.begins) for due in clock.take(99)] == [("pause", False)]
    assert clock.due_s == math.inf


def test_silence_is_death_only_when_it_lasts() -> None:
    short = plan_of(faults("kind: down, data_center: west, at: 5 s, for: 9 s"))
    long = plan_of(faults("kind: down, link: west>hub, at: 5 s, for: 11 s"))
    assert short.timeouts.dead_after_s == 10
    assert list(silences(short)) == [] and list(silences(long)) == [(15, "west")]


@for_each(
    ("text", "says"),
    [
        ("kind: nan, node: east/worker0, round: 4", "faults[0].round: 4 is not before training.rounds (4)"),
        ("kind: kill, node: east/worker0, at: 600 h", "faults[0].at: 2.16e+06 s is not before the run's deadline"),
        ("kind: kill, node: east/worker0, sometime: {from: 600 h, to: 601 h}", "faults[0].sometime: 2.16e+06 s is not"),
    ],
)
def test_a_fault_after_the_run_is_refused(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(faults(text), "training.rounds=4")
    assert says in str(caught.value)


def test_a_run_without_nodes_is_refused() -> None:
    everybody = faults("kind: kill, node: '*', at: 0 s")
    with pytest.raises(ScenarioError, match="kills every node before the run has begun"):
        plan_of(everybody)
    assert plan_of(everybody, "recovery={on_failure: restart}").faults
    assert plan_of(faults("kind: kill, node: '*', pick: 1, at: 0 s")).faults
