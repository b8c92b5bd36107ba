"""A number of a script that is not finite has the effect that ``recovery.on_nan`` says, wherever the script has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import Finished, run_scenario
from tests.for_each import for_each
from tests.kvstore.scripts import scenario

GEO = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), store)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    if step == 3 and store.rank == 2:
        model.bias.grad.mul_(SPOILT)
        model.weight.grad.mul_(FACTOR)
    optimizer.step()
"""
SPOILT = GEO.replace("SPOILT", "float('nan')").replace("FACTOR", "1.0")
LEFT_OUT = GEO.replace("SPOILT", "0.0").replace("FACTOR", "0.0")
ALGORITHMS = ["fsa", "mixedsync", "{kind: diloco, h: 2}"]
BY_HAND = """
import torch
from testbed.kvstore import GeoOptimizer, connect, create
store = connect()
HERE = store.rank == 2
NAN = float("nan")
"""
PLACES = {
    "push": ("""
store.init("w", torch.zeros(3))
for step in range(2):
    store.pushpull("w", torch.full((3,), torch.inf if HERE and step == 1 else 1.0))
""", "non-finite push: east/worker1, step 1, key 'w', 3 elements"),
    "GeoMX": ("""
kv = create("dist_sync")
kv.init([4, 9], [torch.zeros(3), torch.zeros(3)])
kv.push([4, 9], [torch.ones(3), torch.tensor([0, NAN if HERE else 0, 1])])
kv.pull([4, 9])
""", "non-finite push: east/worker1, step 0, key 9, 1 elements"),
    "report": ("""
store.report(accuracy=0.5, loss=NAN if HERE else 1.0)
""", "non-finite report: east/worker1, step 0, loss, 1 elements"),
    "loss": ("""
weight = torch.nn.Parameter(torch.ones(3))
optimizer = GeoOptimizer(torch.optim.SGD([weight], lr=0.1), store)
def closure():
    weight.grad = torch.ones(3)
    return torch.tensor(NAN if HERE else 1.0)
optimizer.step(closure)
""", "non-finite loss: east/worker1, step 0, the closure's value, 1 elements"),
}  # fmt: skip


def finished(folder: Path, script: str, *overrides: str, on: str = "simulate") -> Finished:
    return run_scenario(folder / "run", on, *overrides, scenario=scenario(folder, script, rounds=6))


@for_each("sync", ALGORITHMS)
def test_a_gradient_ends_the_run_or_is_left_out_with_every_algorithm(sync: str, tmp_path: Path) -> None:
    found = "non-finite gradient: east/worker1, step 3, tensor 1, 1 elements"
    ended = finished(tmp_path / "abort", SPOILT, f"sync={sync}").outcome
    assert (ended.status, ended.exit_code) == ("diverged", 7) and ended.message.startswith(found)
    skipped = finished(tmp_path / "skip", SPOILT, f"sync={sync}", "recovery.on_nan=skip")
    assert f"{found}: left out of the round" in [event["message"] for event in skipped.of_kind("warning")]
    zeros = finished(tmp_path / "zeros", LEFT_OUT, f"sync={sync}")
    assert skipped.outcome.message == "" and skipped.hashes("worker") == zeros.hashes("worker")


@for_each("place", PLACES)
def test_the_place_is_named(place: str, tmp_path: Path) -> None:
    script, found = PLACES[place]
    ended = finished(tmp_path / "abort", BY_HAND + script).outcome
    assert ended.exit_code == 7 and ended.message.startswith(found)
    skipped = finished(tmp_path / "skip", BY_HAND + script, "recovery.on_nan=skip")
    assert skipped.outcome.exit_code == 0 and not [each for each in skipped.of_kind("final") if "not_finite" in each]


@pytest.mark.slow  # 2 s
def test_real_nodes_end_the_run_as_well(tmp_path: Path) -> None:
    ended = finished(tmp_path, SPOILT, on="local").outcome
    assert ended.exit_code == 7 and "non-finite gradient: east/worker1, step 3" in ended.message


def test_a_model_cannot_be_left_out_of_a_mean(tmp_path: Path) -> None:
    script = SPOILT.replace("model.bias.grad.mul_(float('nan'))", "model.bias.data.mul_(float('inf'))")
    chosen = ("sync={kind: hfa, k1: 2, k2: 1}", "recovery.on_nan=skip")
    assert "non-finite model: east/worker1, step" in finished(tmp_path, script, *chosen).outcome.message
