"""All-reduce and gossip go on when workers are lost at any instant, and take in those that start again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from testbed.plan.model import Plan
from testbed.training.batches import Batches
from testbed.training.datasets import load_dataset
from testbed.training.models import build_model
from testbed.training.seeds import seed_for
from testbed.training.splits import share_of
from tests.end_to_end.runs import run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.engine.runs import THREE_SITES
from tests.faults.runs import CONTINUE, JOB, Ended, faults, run
from tests.faults.survivors import WORKERS, broken, schedule
from tests.for_each import for_each

LAST = 9
RING = "paradigm={kind: allreduce, algorithm: ring}"
DPSGD = "paradigm={kind: gossip, algorithm: dpsgd, graph: ring}"
ADPSGD = "paradigm={kind: gossip, algorithm: adpsgd, graph: complete}"
SGD = "optimizer={kind: sgd, learning_rate: 0.01}"


@for_each("paradigm", ["allreduce", "gossip"])
@for_each("seed", [1, 6])
def test_whoever_is_killed_whenever(paradigm: str, seed: int) -> None:
    assert broken(schedule(paradigm, seed)) == ""


@pytest.mark.slow  # 13 s each; at a hundred instants: tests.faults.survivors
@pytest.mark.parametrize("paradigm", ["allreduce", "gossip"])
def test_at_ten_instants(paradigm: str) -> None:
    found = {seed: broken(schedule(paradigm, seed)) for seed in range(10)}
    assert not {seed: why for seed, why in found.items() if why}


def finished(ended: Ended, *lost: str) -> None:
    assert ended.error is None and len(ended.hashes()) == 1
    for worker in WORKERS:
        if worker not in lost:
            assert ended.rounds(worker) == list(range(LAST + 1)), worker


@for_each("technique", [RING, DPSGD])
def test_two_at_once(tmp_path: Path, technique: str) -> None:
    both = ("east/worker0", "west/worker0")
    ended = run(tmp_path, technique, CONTINUE, faults(*(f"kind: kill, node: {node}, at: 700 ms" for node in both)))
    finished(ended, *both)
    assert [event["targets"] for event in ended.events("epoch")] == list(both)


@for_each("technique", [RING, ADPSGD])
def test_the_first_rank_counts_and_evaluates_and_another_does_so_after_it(tmp_path: Path, technique: str) -> None:
    ended = run(
        tmp_path, technique, "training.rounds=13", CONTINUE, faults("kind: kill, node: hub/worker0, at: 900 ms")
    )
    assert ended.error is None and len(ended.hashes()) == 1
    assert {event["node"] for event in ended.events("evaluate") if event["t"] > 1.5} == {"east/worker0"}


@for_each("technique", [RING, ADPSGD])
def test_a_worker_that_starts_again_takes_part_again(tmp_path: Path, technique: str) -> None:
    lost = faults("kind: kill, node: west/worker0, round: 3, for: 200 ms")
    ended = run(tmp_path, technique, "training.rounds=14", CONTINUE, lost)
    assert ended.error is None and len(ended.hashes()) == 1
    rounds = ended.rounds("west/worker0")
    assert rounds == sorted(set(rounds)) and rounds[-1] >= 11 and len(rounds) < 14


@for_each("technique", [RING, DPSGD])
def test_a_worker_joins_a_run_in_progress(tmp_path: Path, technique: str) -> None:
    ended = run(tmp_path, technique, CONTINUE, faults("kind: join, node: east/worker1, round: 4"))
    finished(ended, "east/worker1")
    rounds = ended.rounds("east/worker1")
    assert rounds == list(range(rounds[0], LAST + 1)) and rounds[0] > 4


@pytest.mark.parametrize("bucket", ["1 KiB", pytest.param("25 MB", marks=pytest.mark.slow)])  # 2 s
def test_every_gradient_counts_once_or_not_at_all(tmp_path: Path, bucket: str) -> None:
    """Against one process that adds up, round by round, the gradients of those who took part."""
    paradigm = f"paradigm={{kind: allreduce, algorithm: ring, bucket: {bucket}, overlap: buckets}}"
    kills = ("kind: kill, node: east/worker0, at: 330 ms, for: 400 ms", "kind: kill, node: west/worker0, at: 1100 ms")
    ended = run(tmp_path, paradigm, SGD, CONTINUE, faults(*kills))
    finished(ended, "east/worker0", "west/worker0")
    missing: dict[int, str] = {}
    for event in ended.events("partial"):
        assert missing.setdefault(event["round"], event["targets"]) == event["targets"], "all agree"
    assert set(missing.values()) == {"east/worker0", "west/worker0"}
    expected = _trained_without(ended.plan, missing)
    simulated = _final_values(ended)
    assert torch.allclose(simulated, expected, atol=1e-6)
    assert not torch.allclose(simulated, _trained_without(ended.plan, {}), atol=1e-4)


def _final_values(ended: Ended) -> torch.Tensor:
    from testbed.engine.roles import make_role
    from testbed.simulation.run import simulate

    exits = simulate(ended.plan, make_role, ended.directory / "again", lambda line: None)
    return torch.cat(exits["hub/worker0"].result)


def _trained_without(plan: Plan, missing: Mapping[int, str]) -> torch.Tensor:
    training, names = plan.training, [worker.name for worker in plan.training_workers]
    dataset = load_dataset(training.data.kind, training.data.options, plan.seed)
    seed = seed_for(plan.seed, "model", plan.with_role("worker")[0].rank)
    model = build_model(training.model.kind, training.model.options, dataset.input_shape, dataset.classes, seed)
    split = training.split
    streams = {
        name: Batches(
            share_of(dataset.train_labels, split.kind, split.options, plan.seed, rank, len(names)),
            training.batch_size,
            plan.seed,
            rank,
        )
        for rank, name in enumerate(names)
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.technique.optimizer.options["learning_rate"])
    for round_ in range(training.rounds):
        present = [name for name in names if name not in missing.get(round_, "").split(", ")]
        optimizer.zero_grad()
        for name in present:
            indices = streams[name].indices(round_)
            loss = functional.cross_entropy(model(dataset.train_inputs[indices]), dataset.train_labels[indices])
            (loss * len(names) / len(present)).backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


@pytest.mark.slow  # 15 s each
@pytest.mark.emulation
@pytest.mark.parametrize("technique", [RING, ADPSGD])
def test_emulated_too(tmp_path: Path, technique: str) -> None:
    skip_unless_possible("emulate")
    kill = faults("kind: kill, node: east/worker1, round: 5, for: 1 s")
    job = (*JOB, technique, "device.step_time=100 ms", "training.rounds=60", "training.evaluate_every=30")
    ended = run_scenario(tmp_path / "run", "emulate", *job, CONTINUE, kill, scenario=THREE_SITES)
    assert ended.outcome.exit_code == 0, ended.outcome.message
    assert len(ended.hashes("worker")) == 1 and len(ended.of_kind("final")) == 5
    assert [event["begins"] for event in sorted(ended.of_kind("epoch"), key=lambda event: event["t"])] == [False, True]
