"""Decoupled DiLoCo: with a quorum of all it is streaming DiLoCo, and with fewer nobody waits for who is late."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed.policy.events import Aggregate, Alarm, Effect, Push, Reply, WorkerReport
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import Tier
from testbed.policy.sync.decoupled import DecoupledDiLoCo
from testbed.testing.contracts import failures
from testbed.testing.subject import Subject
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

SMALL = ("training.model={kind: mlp, hidden: 8}", "training.rounds=12", "training.evaluate_every=4")
SGD = "optimizer={kind: sgd, learning_rate: 0.05, at: worker}"
FRAGMENTS = "h: 4, fragments: 2, overlap_steps: 1"
SLOW_WEST = (
    "topology.data_centers=[{name: hub, central: true, workers: 1}, {name: east, workers: 1}, "
    "{name: west, workers: 1, device: {step_time: 700 ms}}]"
)


def small(directory: Path, *overrides: str) -> Simulated:
    return run(directory, *SMALL, SGD, SLOW_WEST, *overrides)


@for_each("paradigm", ["hips", "ps"])
def test_a_quorum_of_all_is_streaming_diloco_to_the_bit(paradigm: str, tmp_path: Path) -> None:
    ours = small(tmp_path / "1", f"paradigm={paradigm}", f"sync={{kind: decoupled, {FRAGMENTS}, quorum: 3}}")
    diloco = small(tmp_path / "2", f"paradigm={paradigm}", f"sync={{kind: diloco, {FRAGMENTS}}}")
    assert ours.hashes() == diloco.hashes()
    assert [event["round"] for event in ours.of_kind("evaluate")] == [3, 7, 11]


def test_nobody_waits_for_who_is_slow(tmp_path: Path) -> None:
    found = small(tmp_path, "paradigm=ps", f"sync={{kind: decoupled, {FRAGMENTS}, quorum: 1, adaptive: true}}")
    assert found.round_s("hub/worker0") == pytest.approx(0.2, rel=0.1)
    assert found.round_s("west/worker0", skip=0) == pytest.approx(1.4, rel=0.1)
    rounds = [event["round"] for event in found.of_kind("round")]
    assert len(rounds) == pytest.approx(3 * 12, abs=3)
    merged = [set(event["contributors"]) for event in found.of_kind("update")]
    assert {"hub/worker0", "east/worker0"} in merged  # within their slack
    assert any("west/worker0" in each for each in merged)


class Learners:
    """Three of them, with two fragments: rounds 0, 2, … are of one, with key 0, the others of the other, with key 1."""

    def __init__(self, **options: Any) -> None:
        self.policy = DecoupledDiLoCo(Tier.of("a", "b", "c"), DecoupledDiLoCo.Options(h=4, fragments=2, **options))

    def push(self, member: str, round_: int, now_s: float, step_s: float = 0.0) -> list[Effect]:
        reports = {f"{member}/worker0": WorkerReport(step_s, 1.0, 0.5)} if step_s else {}
        return self.policy.on_push(Push(member, round_ % 2, round_, now_s, reports))


def merged(key: int, members: str, *rounds: int) -> list[Effect]:
    return [Aggregate(key, max(rounds), tuple(members), rounds=rounds), Reply(key, rounds, tuple(members))]


def test_only_a_whole_model_without_overlap_is_no_stream() -> None:
    options = DecoupledDiLoCo.Options
    assert DecoupledDiLoCo.streaming(options(fragments=1, overlap_steps=0)) is None
    assert DecoupledDiLoCo.streaming(options(fragments=1, overlap_steps=1)) is not None
    assert DecoupledDiLoCo.streaming(options(fragments=2, overlap_steps=0)) is not None


def test_each_fragment_has_rounds_of_its_own() -> None:
    learners = Learners(quorum=2)
    assert learners.push("a", 0, 1.0) == []
    assert learners.push("b", 1, 2.0) == []
    assert learners.policy.waiting_for(0, 0) == ("c",)  # b waits for the other fragment
    assert learners.push("c", 0, 3.0) == merged(0, "ac", 0, 0)
    assert learners.push("a", 1, 4.0) == merged(1, "ab", 1, 1)


def test_a_round_closes_when_nobody_else_can_come() -> None:
    learners = Learners(quorum=3)
    learners.push("a", 0, 1.0)
    learners.push("b", 1, 2.0)
    assert learners.push("c", 1, 3.0) == merged(1, "bc", 1, 1)  # a waits elsewhere, and now for both of them
    assert learners.push("b", 2, 5.0) == []
    assert learners.push("c", 2, 6.0) == merged(0, "abc", 0, 2, 2)


def test_the_window_lasts_as_long_as_steps_can_be_made() -> None:
    """One step of 3 s, less 1.5 s on the way, after the first contribution."""
    learners = Learners(quorum=1, overlap_steps=1, adaptive=True)
    assert learners.push("a", 0, 10.0, step_s=3.0) == [Alarm(0, 0, 11.5)]
    assert learners.push("b", 0, 11.0, step_s=9.0) == [Alarm(0, 0, 11.5)]
    assert learners.policy.on_alarm(0, 0, 11.5) == merged(0, "ab", 0, 0)
    assert learners.push("c", 0, 12.0, step_s=1.0) == merged(0, "c", 0)  # which cannot wait


@for_each(
    "options", [{"fragments": 4, "quorum": 1, "adaptive": True}, {"fragments": 2, "quorum": 2, "stragglers": "drop"}]
)
def test_the_contract_holds_with_every_option(options: dict[str, Any]) -> None:
    assert failures(Subject(SYNC, "decoupled", {"h": 8, **options})) == []


def test_a_learner_is_lost_and_comes_back_and_the_others_go_on(tmp_path: Path) -> None:
    kill = "faults=[{kind: kill, node: east/worker0, at: 1 s, for: 1 s}]"
    more = ("recovery.on_failure=continue", "timeouts={dead_after: 4 s}", "training.rounds=30", kill)
    found = small(tmp_path, "paradigm=ps", f"sync={{kind: decoupled, {FRAGMENTS}, quorum: 1, adaptive: true}}", *more)
    begins = [event["t0"] for event in found.of_kind("round", "hub/worker0")]
    assert max(after - before for before, after in pairwise(begins)) < 0.3
    assert [event["t0"] for event in found.of_kind("round", "east/worker0")][-1] > 3.0


def test_a_learner_may_be_back_before_all_have_agreed_that_it_is_lost(tmp_path: Path) -> None:
    """While another one stands still there is no agreement. What the first process had pushed counts no more."""
    sites = "topology.data_centers=[{name: hub, central: true, workers: 1}, {name: east, workers: 2}]"
    stops = "{kind: pause, node: east/worker1, at: 400 ms, for: 3 s}"
    fails = "{kind: kill, node: east/worker0, at: 1 s, for: 1 s}"
    more = ("recovery.on_failure=continue", "timeouts={dead_after: 6 s}", f"faults=[{stops}, {fails}]")
    sync = "sync={kind: decoupled, h: 4, fragments: 2, overlap_steps: 1, quorum: 3}"
    links = "topology.links=[{between: [hub, east], rate: 20 Mbit/s, delay: 10 ms}]"
    found = run(tmp_path, *SMALL, SGD, sites, links, "paradigm=ps", sync, *more)
    rounds = [event["round"] for event in found.of_kind("round", "east/worker0")]
    assert len(rounds) > len(set(rounds))  # it has made rounds of the same number twice
