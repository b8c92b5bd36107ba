"""A script that loops over ``store.steps`` goes on where a checkpoint was made, with the same bits and times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from tests.engine.checkpoint.killed import resumed_at, run_until, story
from tests.kvstore import scripts

LOOP = """
import random, numpy, torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), store)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
for step in store.steps(12, model=model, optimizer=optimizer, scheduler=scheduler):
    inputs = torch.randn(5, 4) + random.random() + numpy.random.rand()
    loss = (model(inputs) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
"""
KEYS = """
import torch
from testbed.kvstore import connect
store = connect()
store.init(0, torch.zeros(3))
store.init(1, torch.ones(2000))
store.set_optimizer("adam", learning_rate=0.1)
store.set_compression("topk", ratio=0.01, bound=100)
for step in store.steps(12):
    handles = [store.push(0, torch.randn(3)), store.push(1, torch.randn(2000))]
    [handle.wait() for handle in handles]
"""
GEOMX = """
import torch
from testbed.kvstore import create
kv = create("dist_sync")
kv.init(0, torch.zeros(3))
kv.init(1, torch.ones(20))
kv.set_optimizer("adam", learning_rate=0.1)
for step in kv.store.steps(12):
    kv.push(0, torch.randn(3))
    kv.push(1, torch.randn(20))
    values = kv.pull([0, 1])
    kv.store.report(float(values[0][0]), float(values[1][0]))
"""
SETTINGS = {
    "geomx": (GEOMX, ()),
    "fsa": (LOOP, ()),
    "hfa": (LOOP, ("sync={kind: hfa, k1: 2, k2: 1}",)),
    "esync": (LOOP, ("sync={kind: esync, fixed_steps: 2}", "data_centers[1].device.speed=0.4")),
    "topk": (LOOP, ("codec={kind: topk, ratio: 0.1, bound: 10, pull: sparse-sum}",)),
    "keys": (KEYS, ()),
}


def plan_of(folder: Path, script: str, *texts: str) -> Plan:
    path = scripts.scenario(folder, script, rounds=12, evaluate_every=3)
    return build_plan(load(path, ("checkpoint.every=2", *texts)), "simulate")


@pytest.mark.sample(1)  # of 3, which take 6 s
@pytest.mark.parametrize(
    "name", ["geomx", "fsa", "esync", "keys", *(pytest.param(each, marks=pytest.mark.slow) for each in ("hfa", "topk"))]
)  # 1 s each
def test_a_script_goes_on(name: str, tmp_path: Path) -> None:
    script, texts = SETTINGS[name]
    plan, chance = plan_of(tmp_path / "script", script, *texts), random.Random(name)
    whole = run_until(plan, tmp_path / "whole")
    rounds = [event["t"] for event in whole if event["kind"] == "round"]
    run_until(plan, tmp_path / "killed", chance.uniform(rounds[len(rounds) // 2], rounds[-1]))
    since_s = resumed_at(tmp_path / "killed", plan)
    assert since_s > rounds[0]
    expected = [event for event in story(whole, since_s) if event["kind"] != "train"]
    resumed = story(run_until(plan, tmp_path / "killed"), since_s)
    assert str(resumed) == str(expected) != "[]"  # as text, since a script's losses are not numbers


def test_a_script_without_the_loop_is_warned(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "script", LOOP.replace("store.steps(12, model=model, optimizer=optimizer, "
                   "scheduler=scheduler)", "range(4)"))  # fmt: skip
    events = run_until(plan, tmp_path / "run")
    (warning,) = (
        event["message"] for event in events if event["kind"] == "warning" and "store.steps" in event["message"]
    )
    assert "no checkpoint was made" in warning
