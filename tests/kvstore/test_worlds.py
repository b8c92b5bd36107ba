"""Scripts in all worlds: equal hashes of what is shared, loaders with processes, numbers that are not finite."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from testbed.execution import record, session
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.scenario.load import load
from tests.end_to_end.runs import Finished, run_scenario
from tests.for_each import for_each
from tests.kvstore import scripts

TRAINING = """
import torch
from dataclasses import dataclass
from testbed.kvstore import GeoOptimizer, connect
store = connect()

@dataclass
class Sample:
    values: torch.Tensor

class Samples(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, number): return Sample(torch.full((4,), number + 100.0 * store.rank) + torch.rand(4))

def collate(samples):
    return Sample(torch.stack([sample.values for sample in samples]))

torch.manual_seed(5 + store.rank)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
optimizer = GeoOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), store, model=model, buffers="BUFFERS")
loader = torch.utils.data.DataLoader(Samples(), 10, shuffle=True, collate_fn=collate, OPTIONS)
for batch in loader:
    optimizer.zero_grad()
    model(batch.values).square().mean().backward()
    optimizer.step()
torch.save(model.state_dict(), f"{__file__}.{store.rank}")
"""
LOADER = "num_workers=2, persistent_workers=True, timeout=30"


def scenario(folder: Path, buffers: str = "keep", options: str = "num_workers=0") -> Path:
    return scripts.scenario(folder, TRAINING.replace("BUFFERS", buffers).replace("OPTIONS", options))


def result(done: Finished) -> dict[str, Any]:
    """The result as a command writes it."""
    assert done.outcome.status == "done", done.outcome.message
    run = record.prepare(done.directory / "written", done.plan, scenario=b"", resolved="", capabilities={})
    run.events.rmdir()
    run.events.symlink_to(done.directory / "events")
    return record.conclude(run, done.plan, done.outcome, "2000-01-01", 1.0).result


def digests(tmp_path: Path, worlds: tuple[str, ...], *overrides: str, **script: str) -> set[str | None]:
    path = scenario(tmp_path / "script", **script)
    results = [result(run_scenario(tmp_path / world, world, *overrides, scenario=path)) for world in worlds]
    assert all(each["parameters_agree"] for each in results)
    return {each["parameters_sha256"] for each in results}


SETTINGS = [
    (),
    ("codec={tier1: none, tier2: fp16}",),
    ("codec={tier1: none, tier2: {kind: bisparse, pull: sparse-sum, bound: 2, ratio: 0.5}}",),
    ("sync={kind: hfa, k1: 2, k2: 1}",),
    ("sync={kind: diloco, h: 2}",),
    ("paradigm=ps", "codec=fp16"),
]


def test_the_hash_is_equal_in_both_worlds(tmp_path: Path) -> None:
    """With fp16 on the WAN, averaged buffers, and a loader with two processes per worker."""
    overrides = ("codec={tier1: none, tier2: fp16}",)
    (digest,) = digests(tmp_path, ("simulate", "local"), *overrides, buffers="average", options=LOADER)
    assert digest is not None


@pytest.mark.slow  # 25 s
@pytest.mark.emulation
@pytest.mark.parametrize("overrides", SETTINGS, ids=lambda each: " ".join(each) or "fsa")
def test_the_hash_is_equal_in_three_worlds(overrides: tuple[str, ...], tmp_path: Path) -> None:
    (digest,) = digests(tmp_path, ("simulate", "local", "emulate"), *overrides, options=LOADER)
    assert digest is not None


def test_averaged_buffers_are_the_mean(tmp_path: Path) -> None:
    script = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
model = torch.nn.Linear(1, 1)
model.register_buffer("mine", torch.zeros(2))
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store, model=model, buffers="average")
for step in range(4):
    model.mine += torch.tensor([1.0, 10.0]) * store.rank
    model(torch.ones(1)).backward()
    optimizer.step()
    assert torch.allclose(model.mine, torch.tensor([1.0, 10.0]) * (1 + step)), model.mine
"""
    path = scripts.scenario(tmp_path / "script", script)
    assert run_scenario(tmp_path / "run", "simulate", scenario=path).outcome.message == ""
    by_worker = "sync={kind: hfa, k1: 1, k2: 1, weights: worker}"
    assert run_scenario(tmp_path / "hfa", "simulate", by_worker, scenario=path).outcome.message == ""


DOUBTFUL = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)
def train(batches, rate=lambda step: 0.1):
    for step, inputs in enumerate(batches):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""
HFA = "sync={kind: hfa, k1: 2, k2: 1}"
ENDS = {
    "no batch": ("train(torch.utils.data.DataLoader(torch.ones(10, 4), 16, drop_last=True))", "", "got no batch"),
    "no loop": ("", "", "no worker made a step"),
    "rates": (
        "train(torch.ones(4, 2, 4), lambda step: 0.1 if step < 2 else 0.1 * (1 + store.rank))",
        "",
        "learning rates differ from round 2 on (",
    ),
    "steps left over": (
        "train(torch.ones(5, 2, 4) * (1 + store.rank))",
        HFA,
        "the script made 1 step after its last exchange",
    ),
    "changed by hand": (
        "train(torch.ones(4, 2, 4)); model.weight.data.add_(store.rank)",
        "",
        "something on the workers has changed",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_trains_nothing_or_several_models_is_degraded_with_the_cause(end: str, tmp_path: Path) -> None:
    script, sync, cause = ENDS[end]
    path = scripts.scenario(tmp_path / "script", DOUBTFUL + script)
    done = run_scenario(tmp_path / "run", "simulate", *([sync] if sync else []), scenario=path)
    fidelity = result(done)["fidelity"]
    assert fidelity["status"] == "degraded" and any(cause in reason for reason in fidelity["reasons"])


@for_each(
    ("end", "early"),
    [
        ("if store.rank == 0: store.report(accuracy=0.5)", True),
        ("store.report(loss=0.5); optimizer.finish()", True),
        ("optimizer.finish(); store.report(accuracy=0.5)", False),
    ],
)
def test_a_run_whose_last_score_is_that_of_an_early_model_is_degraded(end: str, early: bool, tmp_path: Path) -> None:
    script = DOUBTFUL + "train(torch.ones(4, 2, 4))\n" + end
    path = scripts.scenario(tmp_path / "script", script.replace("rate(step)", "0.1"))
    done = run_scenario(tmp_path / "run", "simulate", "sync=tap", "data_centers[1].device.speed=0.2", scenario=path)
    fidelity = result(done)["fidelity"]
    told = [reason for reason in fidelity["reasons"] if "that of an early model" in reason]
    assert len(told) == early and not [note for note in fidelity["notes"] if "finish()" in note]


def test_a_script_that_finishes_after_fewer_steps_is_told_what_it_waits_for(tmp_path: Path) -> None:
    script = DOUBTFUL.replace("rate(step)", "0.1") + "train(torch.ones(3 + store.rank, 2, 4))\noptimizer.finish()\n"
    path = scripts.scenario(tmp_path / "script", script)
    message = run_scenario(tmp_path / "run", "simulate", scenario=path).outcome.message
    assert message.startswith("hub/worker0 waited for all scripts to make as many steps, and to call finish() or")


PROCESSES = """
import multiprocessing, os, time, torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
ended = multiprocessing.Process(target=time.sleep, args=(100,))
ended.start()
ended.terminate()
ended.join(240)
assert ended.exitcode == -15, "a process of a script's own gets its own signals"
left = multiprocessing.Process(target=time.sleep, args=(SECONDS,))
left.start()
open(f"{__file__}.{store.rank}", "w").write(str(left.pid))
model = torch.nn.Linear(2, 1)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)
for step in range(4):
    model(torch.ones(2)).backward()
    optimizer.step()
"""


def test_scripts_may_start_processes_and_leave_them(tmp_path: Path) -> None:
    path = scripts.scenario(tmp_path / "script", PROCESSES.replace("SECONDS", "3"))
    assert run_scenario(tmp_path / "run", "local", scenario=path).outcome.message == ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow  # 10 s
@pytest.mark.parametrize("world", ["simulate", "local"])
def test_what_scripts_have_left_ends_with_the_run(world: str, tmp_path: Path) -> None:
    path = scripts.scenario(tmp_path / "script", PROCESSES.replace("SECONDS", "1000"))
    plan = build_plan(load(path), world)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_bytes(to_json(plan))
    assert session.run(plan, tmp_path / "run", lambda event: None).message == ""
    left = [int((path.parent / f"mine.py.{rank}").read_text()) for rank in range(3)]
    while any(map(alive, left)):
        time.sleep(0.1)


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
    "push": (
        """
store.init("w", torch.zeros(3))
for step in range(2):
    store.pushpull("w", torch.full((3,), torch.inf if HERE and step == 1 else 1.0))
""",
        "non-finite push: east/worker1, step 1, key 'w', 3 elements",
    ),
    "GeoMX": (
        """
kv = create("dist_sync")
kv.init([4, 9], [torch.zeros(3), torch.zeros(3)])
kv.push([4, 9], [torch.ones(3), torch.tensor([0, NAN if HERE else 0, 1])])
kv.pull([4, 9])
""",
        "non-finite push: east/worker1, step 0, key 9, 1 elements",
    ),
    "report": (
        """
store.report(accuracy=0.5, loss=NAN if HERE else 1.0)
""",
        "non-finite report: east/worker1, step 0, loss, 1 elements",
    ),
    "loss": (
        """
weight = torch.nn.Parameter(torch.ones(3))
optimizer = GeoOptimizer(torch.optim.SGD([weight], lr=0.1), store)
def closure():
    weight.grad = torch.ones(3)
    return torch.tensor(NAN if HERE else 1.0)
optimizer.step(closure)
""",
        "non-finite loss: east/worker1, step 0, the closure's value, 1 elements",
    ),
}


def finished(folder: Path, script: str, *overrides: str, on: str = "simulate") -> Finished:
    return run_scenario(folder / "run", on, *overrides, scenario=scripts.scenario(folder, script, rounds=6))


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
