"""Folding loses nothing: a folded run is the run of its workers, to the byte and (but for rounding) to the instant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results import tables
from testbed.results.summary import covered_round_time_s, stands_for
from testbed.scenario.load import loads
from testbed.simulation.fold import fold
from testbed.simulation.run import simulate
from tests.for_each import for_each
from tests.simulation.star import read_events

EXACT = 1e-9
SCENARIO = """
version: 1
name: folded
run: {on: simulate}
seed: 5
topology:
  data_centers:
    - {name: a, central: true, workers: 4}
    - {name: b, workers: 12, device: {step_time: 0.7 s}}
    - {name: c, workers: 3}
  links:
    - {between: [a, b], rate: 200 Mbit/s, delay: 20 ms}
    - {between: [a, c], rate: 400 Mbit/s, delay: 5 ms}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: {kind: declared, name: resnet18, buckets: 3}, data: none, batch: 8, rounds: 4, evaluate_every: 9,
           compute: modelled}
device: {step_time: 0.5 s}
"""
CASES = {
    "fsa": (),
    "whole keys": ("order={kind: fifo, slice: whole}", "device.variation=0.4"),
    "unequal steps": ("device.variation=0.4",),
    "hfa": (
        "sync={kind: hfa, k1: 3, k2: 2}",
        "optimizer={kind: sgd, learning_rate: 0.1, at: worker}",
        "device.variation=0.2",
    ),
    "p3": ("order={kind: p3, slice: 4 MB, overlap: none}", "device.variation=0.4"),
    "layers": ("order={kind: p3, slice: 4 MB, overlap: layers}",),
    "fp16": ("codec=fp16", "device.variation=0.4"),
    "twobit": ("codec=twobit", "device.variation=0.4", "device.codec_speed=0.1"),
    "sparse above": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.01}}",),
    "one tier": ("paradigm=ps", "device.variation=0.4"),
}


def plan_of(*overrides: str) -> Plan:
    """Return a Plan whose workers may be folded: only flows can stand for those of several workers."""
    return build_plan(loads(SCENARIO, overrides=("simulation.network=flows", *overrides)), "simulate")


class Ran:
    """Of one run: for each worker that logged its rounds' ends since training began; bytes by WAN direction."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        exits = simulate(plan, make_role, directory, lambda event: None)
        assert [end.error for end in exits.values() if end.error] == []
        events: dict[str, list[dict[str, Any]]] = {name: [] for name in exits}
        for event in read_events(directory):
            events.setdefault(event["node"], []).append(event)
        (start_s,) = [e["t"] for log in events.values() for e in log if e["kind"] == "train"]
        self.ends = {
            name: [event["t"] - start_s for event in log if event["kind"] == "round"]
            for name, log in events.items()
            if "worker" in name
        }
        self.stands_for = {e_["stands_for"] for log in events.values() for e_ in log if "stands_for" in e_}
        frames = {name: tables.frame(table) for name, table in tables.build(directory / "events").items()}
        self.round_time_s = covered_round_time_s(frames["rounds"], stands_for(frames["nodes"]))
        self.bytes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for event in (e for log in events.values() for e in log):
            if event["kind"] == "transfer" and event["tier"] == "wan" and event["key"] >= 0 and event["round"] >= 0:
                count = self.bytes[event["source"].split("/")[0], event["target"].split("/")[0]]
                count[0] += event["payload_bytes"]
                count[1] += event["header_bytes"]


@pytest.mark.sample(2)  # of 11, which take 9 s
@pytest.mark.parametrize("name", CASES)
def test_folded_workers_end_their_rounds_when_they_would_unfolded(name: str, tmp_path: Path) -> None:
    plan = plan_of(*CASES[name])
    whole = Ran(replace(plan, simulation=replace(plan.simulation, fold=False)), tmp_path / "whole")
    folded = Ran(plan, tmp_path / "folded")
    assert set(folded.ends) < set(whole.ends), "something was folded"
    assert len(whole.ends) == 19
    for worker, ends in folded.ends.items():
        assert ends == pytest.approx(whole.ends[worker], rel=EXACT, abs=2e-6), worker  # events keep microseconds
    assert folded.bytes == whole.bytes
    assert folded.round_time_s == pytest.approx(whole.round_time_s, rel=1e-5)


def test_groups_are_listed_by_their_first_worker() -> None:
    plan = plan_of()
    folded, groups = fold(plan)
    sizes = {name: len(group) for name, group in groups.items()}
    assert sizes == {"a/worker1": 3, "b/worker0": 12, "c/worker0": 3}
    assert len(folded.nodes) == len(plan.nodes) - 2 - 11 - 2
    assert folded.node("b/server0").children == ("b/worker0",)
    assert folded.node("a/server0").children == ("a/worker0", "a/worker1")


def test_the_start_event_says_how_many_workers_it_stands_for(tmp_path: Path) -> None:
    assert Ran(plan_of(), tmp_path).stands_for == {3, 12}


@for_each(
    "overrides",
    [
        ("simulation.fold=false",),
        ("simulation.network=emulated",),
        ("sync=tap",),
        ("sync={tier1: esync, tier2: fsa}", "optimizer={kind: sgd, learning_rate: 0.1, at: worker}"),
        ("codec={kind: bisparse, ratio: 0.01}",),
        ("overlay=tsengine",),
        ("paradigm=allreduce",),
        ("order={kind: p3, overlap: layers}", "device.variation=0.1"),
        ("paradigm=ps", "topology.data_centers[a].global_servers=2", "shard=multigps"),
    ],
)
def test_where_workers_differ_in_more_than_time_nothing_is_folded(overrides: tuple[str, ...]) -> None:
    plan = plan_of(*overrides)
    assert fold(plan)[0] is plan


def test_real_mathematics_is_never_folded() -> None:
    plan = plan_of("training.model=mlp", "training.data=digits", "training.compute=real")
    assert not fold(plan)[1]
