"""A script that loops over ``store.steps`` goes on where a checkpoint was made, with the same bits and times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.kvstore.checkpoint import generator_states, saved_objects
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.policy.sync.hfa import Hfa
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
values = kv.pull([0, 1])
for step in kv.store.steps(12):
    kv.push(0, values[0] + torch.randn(3))
    kv.push(1, values[1] + torch.randn(20))
    values = kv.pull([0, 1])
    kv.store.report(float(values[0][0]), float(values[1][0]))
"""
UNNAMED = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
model = torch.nn.Linear(4, 3)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)
for step in store.steps(12):
    optimizer.zero_grad()
    (model(torch.randn(5, 4)) ** 2).mean().backward()
    optimizer.step()
"""
NUMPY = UNNAMED.replace("import torch", "import numpy, torch").replace(
    "for step in store.steps(12):",
    """
class Best:
    best = numpy.float64(9)
    seen = numpy.zeros(12, numpy.float32)
    def state_dict(self): return vars(self)
    def load_state_dict(self, state): vars(self).update(state)
kept = Best()
for step in store.steps(12, kept=kept):
    kept.best = numpy.float64(step)
    assert len(numpy.nonzero(kept.seen)[0]) == step, kept.seen
    kept.seen = kept.seen + numpy.eye(12, dtype=numpy.float32)[step]
    store.report(kept.best, 0.0)""",
)
SOME = KEYS.replace("store.init(1,", "store.init(2, torch.zeros(4))\nstore.init(1,").replace(
    "store.init(1, torch.ones(2000))", "store.init(1, torch.ones(2000))\nstore.init(3, torch.ones(2))"
)
SETTINGS = {
    "some keys": (SOME, ()),
    "numpy": (NUMPY, ()),
    "unnamed": (UNNAMED, ()),
    "geomx": (GEOMX, ()),
    "fsa": (LOOP, ()),
    "hfa": (LOOP, ("sync={kind: hfa, k1: 2, k2: 1}",)),
    "esync": (LOOP, ("sync={kind: esync, fixed_steps: 2}", "data_centers[1].device.speed=0.4")),
    "topk": (LOOP, ("codec={kind: topk, ratio: 0.1, bound: 10, pull: sparse-sum}",)),
    "keys": (KEYS, ()),
}
SLOW = ("hfa", "topk")


def plan_of(folder: Path, script: str, *texts: str) -> Plan:
    path = scripts.scenario(folder, script, rounds=12, evaluate_every=3)
    return build_plan(load(path, ("checkpoint.every=2", *texts)), "simulate")


@pytest.mark.sample(1)  # of 7, which take 12 s
@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in SETTINGS])
def test_a_script_goes_on(name: str, tmp_path: Path) -> None:
    script, texts = SETTINGS[name]
    assert_goes_on(plan_of(tmp_path / "script", script, *texts), tmp_path, random.Random(name))


def assert_goes_on(plan: Plan, directory: Path, chance: random.Random) -> None:
    whole = run_until(plan, directory / "whole")
    rounds = [event["t"] for event in whole if event["kind"] == "round"]
    run_until(plan, directory / "killed", chance.uniform(rounds[len(rounds) // 2], rounds[-1]))
    since_s = resumed_at(directory / "killed", plan)
    assert since_s > rounds[0]
    expected = [event for event in story(whole, since_s) if event["kind"] != "train"]
    resumed = story(run_until(plan, directory / "killed"), since_s)
    assert str(resumed) == str(expected) != "[]"  # as text, since a script's losses are not numbers


def test_a_script_goes_on_with_the_local_steps_of_its_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an algorithm whose local phase grows, as CONTRIBUTING.md has one: rounds of 1, 2, 3 and 4 steps."""
    monkeypatch.setattr(Hfa, "local_steps", classmethod(lambda cls, options, round_: 1 + round_))
    plan = plan_of(tmp_path / "script", LOOP, "sync={kind: hfa, k1: 1, k2: 1}")
    assert_goes_on(plan, tmp_path, random.Random(2))


def test_a_state_that_could_not_be_loaded_is_named_when_it_is_kept() -> None:
    class Net:
        def __init__(self, content: object) -> None:
            self.content = content

        def state_dict(self) -> dict[str, object]:
            return {"content": self.content}

    objects = {"model": Net(torch.ones(3)), "best": Net(Path("x"))}
    with pytest.raises(ScenarioError, match=r"the state of 'best' holds pathlib\.\w+Path, which a checkpoint cannot"):
        saved_objects(objects, generator_states())


def test_a_script_without_the_loop_is_warned(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path / "script",
        LOOP.replace("store.steps(12, model=model, optimizer=optimizer, scheduler=scheduler)", "range(4)"),
    )
    events = run_until(plan, tmp_path / "run")
    (warning,) = (
        event["message"] for event in events if event["kind"] == "warning" and "store.steps" in event["message"]
    )
    assert "no checkpoint was made" in warning
