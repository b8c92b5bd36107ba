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
from testbed.policy.sync import SYNC
from testbed.scenario.load import load
from testbed.scenario.matrix import AXES, Combination, overrides
from testbed.training.options import OPTIMIZERS
from tests.engine.checkpoint.killed import resumed_at, run_until, story
from tests.engine.runs import THREE_SITES
from tests.scenario.covering import filled

SMALL = (
    "training.model={kind: mlp, hidden: 8}",
    "training.rounds=6",
    "training.evaluate_every=2",
    "checkpoint.every=2",
    "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9}",
    "device.variation=30 %",
    "data_centers[west].device.speed=0.5",
    "data_centers[hub].global_servers=2",
)
# few steps a round, and keys that are large enough for sparse codecs
QUICK = {
    "hfa": ("sync.k1=2",),
    "diloco": ("sync.h=2",),
    "async_local_sgd": ("sync.h=2",),
    "halos": ("sync.h=2", "sync.updates=2"),
    "deco": ("sync.every=2",),
    **dict.fromkeys(("bisparse", "dgc", "mpq", "mstopk", "topk", "randomk"), ("codec.bound=100",)),
}
LOSSY = ("links[*].loss=1 %", "links[*].queue=20 KB")
ONE_BY_ONE: dict[str, Combination] = {
    f"{axis} {kind}": {axis: kind}
    for axis, kinds in AXES.items()
    for kind in kinds
    if axis != "sync" or SYNC[kind].pauses
}
INSIDE = {
    **{
        f"all-reduce {kind}": [f"paradigm={{kind: allreduce, algorithm: {kind}}}", "data_centers[*].workers=1"]
        for kind in (*ALL_REDUCE, *SPARSE)
    },
    **{
        f"gossip {kind}": [
            f"paradigm={{kind: gossip, algorithm: {kind}}}",
            *(["sync={kind: diloco, h: 2}"] if each.changes else []),
        ]
        for kind, each in ALGORITHMS.items()
    },
    **{f"optimizer {kind}": [f"optimizer={{kind: {kind}, learning_rate: 0.01}}"] for kind in OPTIMIZERS},
    "layers": ["order={kind: fifo, overlap: layers}"],
    "pull differences": ["codec={kind: bisparse, ratio: 0.05, pull: difference, bound: 100}"],
    "exact selector": ["codec={kind: mstopk, ratio: 0.05, selector: exact, bound: 100}"],
    "dgt lossy": ["order={kind: dgt, block: 512 bytes}", *LOSSY],
    "dgt 4-bit": ["order={kind: dgt, block: 512 bytes, code: 4-bit, selection: random}", *LOSSY],
    "dgt retransmits": ["order={kind: dgt, block: 512 bytes, late: retransmit}", *LOSSY],
    "tsengine sums": ["overlay={kind: tsengine, chunk: 2000 bytes}"],
    "netstorm plans anew": ["overlay={kind: netstorm, chunk: 2000 bytes, change: 0.01}"],
    "sums in steps": ["codec={kind: powersgd, start: 2}", "optimizer.at=worker"],
    "shared optimizer": ["paradigm={kind: allreduce, optimizer_work: update}"],
    "overlapping buckets": ["paradigm={kind: allreduce, overlap: buckets}"],
    "asynchronous twice": ["sync={tier1: tap, tier2: {kind: ssp, staleness: 1}}"],
    "dc-asgd": ["sync=mixedsync", "optimizer={kind: dcasgd, learning_rate: 0.05}"],
    "dc-asgd by workers": ["sync=tap", "optimizer={kind: dcasgd, learning_rate: 0.05}"],
    "asynchronous routes": [
        "sync=ssp",
        "data_centers[*].workers=2",
        "overlay={kind: netstorm, chunk: 2000 bytes, change: 0.01, merge: exact}",
    ],
    "fragments": ["sync={kind: diloco, h: 4, fragments: 2, overlap_steps: 1}", "optimizer.at=worker"],
    "fragments summed": ["paradigm=allreduce", "sync={kind: diloco, h: 4, fragments: 2, overlap_steps: 1}"],
    "hfa sums": ["paradigm=allreduce", "sync={kind: hfa, k1: 2, k2: 2}", "codec={kind: topk, ratio: 0.1, bound: 100}"],
    "diloco shares its outer steps": [
        "paradigm={kind: allreduce, optimizer_work: update, shared_by: all}",
        "sync={kind: diloco, h: 2}",
    ],
    "esync sums": ["paradigm=allreduce", "sync=esync"],
    "esync mixes": ["paradigm={kind: gossip, algorithm: sgp}", "sync=esync"],
    "hfa mixes": ["paradigm=gossip", "sync={kind: hfa, k1: 2, k2: 2}", "codec=fp16"],
    "diloco by pairs": ["paradigm={kind: gossip, algorithm: adpsgd}", "sync={kind: diloco, h: 2}"],
    "rows": [
        "paradigm={kind: hips, pull: rows}",
        "training.model={kind: recommender, rows: 300, width: 4, hidden: 8}",
        "training.data={kind: clicks, categories: 200, train_samples: 2000, test_samples: 200}",
    ],
    "sums inside": [
        "paradigm={kind: hips, inside: ring}",
        "data_centers[*].workers=2",
        "codec={tier1: none, tier2: {kind: topk, ratio: 0.1, bound: 100}}",
    ],
    "pipeline over servers": [
        "paradigm={kind: pipeline, stages: 2, replicas: hips}",
        "sync={kind: diloco, h: 2}",
        "optimizer.at=worker",
    ],
    "no central worker": ["data_centers[hub].workers=0"],
    "slower and slower": [
        "sync=esync",
        "optimizer.at=worker",
        "device.slowdown.points=[{at: 0 s, factor: 1}, {at: 600 ms, factor: 3}]",
    ],
}
# one of each way in which state is kept, besides the drawn combinations; all of them are among the slow tests
QUICKLY = (
    "dgt 4-bit",
    "netstorm plans anew",
    "dc-asgd",
    "slower and slower",
    "gossip adpsgd",
    "layers",
    "asynchronous routes",
    "dc-asgd by workers",
    "fragments",
    "fragments summed",
    "hfa sums",
    "diloco shares its outer steps",
    "esync mixes",
    "rows",
    "sums inside",
)


def texts_of(combination: Combination) -> list[str]:
    return [*overrides(combination), *(text for kind in combination.values() for text in QUICK.get(kind, ()))]


TECHNIQUES = {name: texts_of(combination) for name, combination in ONE_BY_ONE.items()} | INSIDE


def drawn(seed: int) -> list[Combination]:
    """Return full combinations in which every value of every axis occurs."""
    rng = random.Random(seed)
    left = [pair for combination in ONE_BY_ONE.values() for pair in combination.items()]
    rows = []

    def new(row: Combination) -> int:
        return len(set(left) & set(row.items()))

    while left:
        rows.append(filled(dict([rng.choice(left)]), rng, new))
        left = [pair for pair in left if pair not in rows[-1].items()]
    return rows


def plan_of(*texts: str) -> Plan:
    return build_plan(load(THREE_SITES, (*SMALL, *texts)), "simulate")


def goes_on_as_if_nothing_had_been(plan: Plan, directory: Path, chance: random.Random, instants: int = 1) -> None:
    whole = run_until(plan, directory / "whole")
    begin_s = next(event["t"] for event in whole if event["kind"] == "evaluate")  # the first checkpoint is before it
    for number in range(instants):
        killed = directory / f"killed{number}"
        for _ in range(chance.choice((1, 1, 2))):
            run_until(plan, killed, chance.uniform(begin_s, whole[-1]["t"]))
        since_s = resumed_at(killed, plan)
        expected = story(whole, since_s)
        assert story(run_until(plan, killed), since_s) == expected != []


@pytest.mark.sample(1)  # of 9, which take 6 s
@pytest.mark.parametrize("combination", drawn(1), ids=lambda combination: "-".join(combination.values()))
def test_drawn_techniques_go_on(combination: Combination, tmp_path: Path) -> None:
    plan = plan_of(*texts_of(combination))
    goes_on_as_if_nothing_had_been(plan, tmp_path, random.Random(str(combination)))


@pytest.mark.sample(2)  # of 16, which take 16 s
@pytest.mark.parametrize("name", QUICKLY)
def test_techniques_inside_an_axis_go_on(name: str, tmp_path: Path) -> None:
    goes_on_as_if_nothing_had_been(plan_of(*TECHNIQUES[name]), tmp_path, random.Random(name))


def test_a_run_whose_tensors_have_no_numbers_goes_on(tmp_path: Path) -> None:
    plan = plan_of(*TECHNIQUES["optimizer adam"], "training.compute=modelled")
    whole = run_until(plan, tmp_path / "whole")
    run_until(plan, tmp_path / "killed", 0.9 * whole[-1]["t"])
    since_s = resumed_at(tmp_path / "killed", plan)
    assert since_s > 0
    assert story(run_until(plan, tmp_path / "killed"), since_s) == story(whole, since_s) != []


@pytest.mark.slow  # 1.5 s each; from a thousand instants: tests.engine.checkpoint.instants
@pytest.mark.parametrize("name", TECHNIQUES)
def test_each_technique_goes_on_from_an_instant(name: str, tmp_path: Path) -> None:
    goes_on_as_if_nothing_had_been(plan_of(*TECHNIQUES[name]), tmp_path, random.Random())
