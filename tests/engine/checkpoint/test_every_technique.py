"""Killed at any instant and resumed, a run in virtual time goes on as if nothing had been: same bits, same times.

Whatever its techniques are: kinds are taken from the tables, so that a new one is tested without a change here.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.policy.collective import ALL_REDUCE, SPARSE
from testbed.policy.gossip import ALGORITHMS
from testbed.scenario.load import load
from testbed.scenario.matrix import AXES, overrides
from testbed.training.options import OPTIMIZERS
from tests.engine.checkpoint.killed import resumed_at, run_until, story
from testbed.results.events import read  # noqa
from tests.engine.runs import THREE_SITES

SMALL = (
    "training.model={kind: mlp, hidden: 8}", "training.rounds=7", "training.evaluate_every=2", "checkpoint.every=2",
    "optimizer={kind: adam, learning_rate: 0.01}", "device.variation=30 %", "data_centers[west].device.speed=0.5",
    "data_centers[hub].global_servers=2",
)  # fmt: skip
LOSSY = ("links[*].loss=1 %", "links[*].queue=20 kB")
OF_AXES = {
    f"{axis}-{kind}": overrides({axis: kind}) for axis, kinds in AXES.items() for kind in kinds
}
SPARSE_KEYS = {name: [*texts, "codec.bound=100"] for name, texts in OF_AXES.items() if name.startswith("codec-")
               and name.removeprefix("codec-") not in ("none", "fp16", "twobit")}  # fmt: skip
INSIDE = {
    **{f"all-reduce-{kind}": [f"paradigm={{kind: allreduce, algorithm: {kind}}}", "data_centers[*].workers=1"]
       for kind in (*ALL_REDUCE, *SPARSE)},
    **{f"gossip-{kind}": [f"paradigm={{kind: gossip, algorithm: {kind}}}"] for kind in ALGORITHMS},
    **{f"optimizer-{kind}": [f"optimizer={{kind: {kind}, learning_rate: 0.01}}"] for kind in OPTIMIZERS},
    "layers": ["order={kind: fifo, overlap: layers}"],
    "pull-difference": ["codec={kind: bisparse, ratio: 0.05, pull: difference, bound: 100}"],
    "selector-published": ["codec={kind: mstopk, ratio: 0.05, selector: published, bound: 100}"],
    "dgt-lossy": ["order={kind: dgt, block: 512 B}", *LOSSY],
    "dgt-4-bit-lossy": ["order={kind: dgt, block: 512 B, code: 4-bit, selection: random}", *LOSSY],
    "dgt-retransmit-lossy": ["order={kind: dgt, block: 512 B, late: retransmit}", *LOSSY],
    "tsengine-sums": ["overlay={kind: tsengine, chunk: 2000 B}"],
    "netstorm-detours": ["overlay={kind: netstorm, chunk: 2000 B, auxiliary: 1, change: 0.01}"],
    "shared-optimizer": ["paradigm={kind: allreduce, optimizer_work: update}"],
    "buckets-overlap": ["paradigm={kind: allreduce, overlap: buckets}"],
    "coordinated": ["paradigm={kind: allreduce, algorithm: hitopk, coordinated: true}", "data_centers[*].workers=2"],
    "asynchronous-twice": ["sync={tier1: tap, tier2: {kind: ssp, staleness: 1}}"],
    "dcasgd": ["sync=mixedsync", "optimizer={kind: dcasgd, learning_rate: 0.05}"],
    "traces": ["sync=tap", "links[*].rate={every: 0.3 s, values: [5 Mbit/s, 20 Mbit/s]}"],
    "slowdown": ["sync=esync", "optimizer.at=worker", "device.slowdown={every: 0.2 s, values: [1, 3]}"],
}  # fmt: skip
TECHNIQUES: dict[str, list[str]] = OF_AXES | SPARSE_KEYS | INSIDE


def plan_of(*texts: str) -> Plan:
    return build_plan(load(THREE_SITES, (*SMALL, *texts)), "simulate")


def goes_on_as_if_nothing_had_been(plan: Plan, directory: Path, chance: random.Random, instants: int) -> None:
    whole = run_until(plan, directory / "whole")
    begin_s = next(event["t"] for event in whole if event["kind"] == "train")
    end_s = whole[-1]["t"]
    for number in range(instants):
        killed = directory / f"killed{number}"
        for _ in range(chance.choice((1, 1, 2))):
            run_until(plan, killed, chance.uniform(begin_s, end_s))
        since_s = resumed_at(killed, plan)
        expected = story(whole, since_s)
        assert story(run_until(plan, killed), since_s) == expected != []


@pytest.mark.parametrize("name", TECHNIQUES)
def test_resumed(name: str, tmp_path: Path) -> None:
    goes_on_as_if_nothing_had_been(plan_of(*TECHNIQUES[name]), tmp_path, random.Random(name), 1)
