"""A data cache: the same bits as without it, from the nearest level, hidden behind the steps where there is time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.engine.learner import make_learner
from testbed.engine.loading import LEVELS, LoadingTrainer
from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.scenario.load import load
from testbed.settings.job import Choice
from testbed.training.cache import FolderDisk, Level, Sample, SampleCoder
from testbed.training.datasets import Dataset
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import Runs, worlds
from tests.for_each import for_each

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
# 1 438 samples for 3 workers: 15 batches of 32 an epoch
BATCH, EPOCH, ROUNDS = 32, 15, 33


def plan_of(groups: tuple[int, ...] = (2, 1), rounds: int = ROUNDS, **options: Any) -> Plan:
    plan = serverless_plan(list(groups), "allreduce", {}, rounds=rounds)
    loading = Choice(kind="cached", options=options) if options else Choice(kind="in_memory")
    return replace(plan, training=replace(plan.training, batch_size=BATCH, loading=loading))


def events(runs: Runs, plan: Plan, kind: str, name: str | None = None) -> list[dict[str, Any]]:
    names = [name] if name else [worker.name for worker in plan.with_role("worker")]
    return [event for one in names for event in runs.events(one) if event["kind"] == kind]


def hash_of(runs: Runs, plan: Plan) -> str:
    run_plan(runs, plan)
    (digest,) = {event["parameters_sha256"] for event in events(runs, plan, "final")}
    return str(digest)


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> str:
    return hash_of(worlds("virtual", tmp_path_factory.mktemp("uncached")), plan_of())


@pytest.mark.sample(2)  # of 8, which take 8 s
@pytest.mark.parametrize("kind", ["virtual", "real"])
@pytest.mark.parametrize(
    "options",
    [
        {"rate": 1e9, "latency": 0.001},
        {"rate": 1e9, "latency": 0.001, "spread": True, "prefetch": 5},
        {"rate": 1e9, "latency": 0.001, "memory": 3000, "disk": 2000, "prefetch": 0},
        {"source": "b", "spread": True},
    ],
    ids=["plain", "spread", "small", "another data centre"],
)
def test_training_ends_with_the_same_bits(kind: str, options: dict[str, Any], uncached: str, tmp_path: Path) -> None:
    assert hash_of(worlds(kind, tmp_path), plan_of(**options)) == uncached


def test_the_second_epoch_comes_from_memory(tmp_path: Path) -> None:
    plan, runs = plan_of(rate=1e9, latency=0.001), worlds("virtual", tmp_path)
    hash_of(runs, plan)
    loads = events(runs, plan, "load", "a/worker1")
    assert len(loads) == ROUNDS
    first = sum(load["remote"] for load in loads[:EPOCH])
    assert first == 479, "every sample of this worker's share is fetched once"
    assert sum(load["remote"] + load["disk"] for load in loads[EPOCH:]) == 0
    assert sum(load["memory"] for load in loads[EPOCH + 1 :]) >= BATCH * (ROUNDS - EPOCH - 3)
    scores = events(runs, plan, "evaluate")
    assert [score["epoch"] for score in scores] == [score["round"] * BATCH // 479 for score in scores]


def test_every_sample_of_a_batch_has_a_source(tmp_path: Path) -> None:
    """Those too that stand twice in it, or that an earlier batch is waiting for: shares are smaller than batches."""
    plan, runs = plan_of(rounds=3, rate=1e9, latency=0.001), worlds("virtual", tmp_path)
    plan = replace(plan, training=replace(plan.training, batch_size=500))
    hash_of(runs, plan)
    counts = [sum(load[level] for level in LEVELS) for load in events(runs, plan, "load")]  # some of batches ahead
    assert sum(counts) >= 9 * 500 and {count % 500 for count in counts} == {0}


@for_each("prefetch", [0, 2])
def test_loading_hides_behind_the_steps(prefetch: int, tmp_path: Path) -> None:
    """5 ms a batch and steps of 10 ms: ahead, only the first one is waited for; without, every one of the epoch."""
    plan, runs = plan_of(rate=1e9, latency=0.005, prefetch=prefetch), worlds("virtual", tmp_path)
    hash_of(runs, plan)
    waited = [load["waited_s"] for load in events(runs, plan, "load", "a/worker0")]
    assert waited[0] >= 0.005
    slow = sum(wait_s > 0.004 for wait_s in waited)
    assert slow == (EPOCH if prefetch == 0 else 1)


def test_a_slow_store_makes_the_rounds_as_long_as_its_transfers(tmp_path: Path) -> None:
    plan, runs = plan_of((1,), rounds=60, rate=20_000, latency=0.0), worlds("virtual", tmp_path)
    hash_of(runs, plan)
    rounds = events(runs, plan, "round")
    lengths = [event["t"] - event["t0"] for event in rounds]
    assert sum(lengths[3:40]) / 37 > 0.5  # 32 samples of about 60 bytes at 20 kbit/s
    assert sum(lengths[-10:]) / 10 == pytest.approx(0.01, rel=0.1)


def test_spread_samples_are_fetched_once_for_the_data_centre(tmp_path: Path) -> None:
    plan, runs = plan_of((2, 2), spread=True, rate=1e9, latency=0.001), worlds("virtual", tmp_path)
    hash_of(runs, plan)
    loads = events(runs, plan, "load")
    assert {load["neighbour"] > 0 for load in loads[2:6]} == {True}
    asked = [e for e in events(runs, plan, "transfer") if e["message"] == "samples"]
    assert {event["tier"] for event in asked} == {"lan"}


@pytest.mark.slow  # 3 s
def test_a_folder_serves_later_runs(tmp_path: Path, uncached: str) -> None:
    plan = plan_of(rate=1e9, latency=0.001, folder=str(tmp_path / "disk"))
    remote = []
    for number in range(2):
        runs = worlds("virtual", tmp_path / str(number))
        assert hash_of(runs, plan) == uncached
        came = {level: sum(load[level] for load in events(runs, plan, "load")) for level in LEVELS}
        remote.append((came["remote"], came["disk"]))
    assert remote[0][1] == 0
    assert remote[1] == (0, remote[0][0])


def test_a_folder_in_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    plan = plan_of(folder="~/cache")
    cast(LoadingTrainer, make_learner(plan, plan.training_workers[0])).open(Mock(), Mock())
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a.worker0"]


def test_damaged_and_foreign_files_are_fetched_again(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path, 10_000, "digits")
    disk.put(1, b"one")
    disk.put(2, b"two")
    assert FolderDisk(tmp_path, 10_000, "digits").get(1) == b"one"
    assert FolderDisk(tmp_path, 10_000, "letters").get(1) is None
    file = next(path for path in tmp_path.iterdir() if path.read_bytes().endswith(b"one"))
    file.write_bytes(file.read_bytes()[:-1])
    assert disk.get(1) is None
    assert disk.get(2) == b"two"


def test_a_folder_that_is_full_or_in_use_costs_the_cache_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "renamed").symlink_to("by another node, between listing and looking")
    disk = FolderDisk(tmp_path, 100, "digits")
    with monkeypatch.context() as full:
        full.setattr(Path, "rename", lambda self, to: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        disk.put(1, b"one")
    assert disk.get(1) is None
    assert [path.name for path in tmp_path.iterdir()] == ["renamed"]
    disk.put(1, b"1" * 68)
    assert disk.get(1) == b"1" * 68, "what was not written takes no room"


@for_each("level", ["shelf", "folder", "memory"])
def test_a_full_level_keeps_what_it_has(level: str, tmp_path: Path) -> None:
    sample = Sample(torch.zeros(9), torch.tensor(1))
    if level == "memory":
        memory: Level[Sample] = Level(100, lambda sample: sample.size_bytes)
        memory.put(1, sample), memory.put(2, sample), memory.put(3, sample)
        assert [memory.get(number) is not None for number in (1, 2, 3)] == [True, True, False]
        return
    disk = Level(100, len) if level == "shelf" else FolderDisk(tmp_path, 164, "x")
    for number in (1, 2, 3):
        disk.put(number, b"x" * 44)
    assert [disk.get(number) is not None for number in (1, 2, 3)] == [True, True, False]


@given(st.sampled_from([torch.float32, torch.uint8, torch.int64]), st.lists(st.integers(1, 4), max_size=3))
def test_samples_come_back_bit_by_bit(dtype: torch.dtype, shape: list[int]) -> None:
    inputs = torch.arange(2 * int(torch.tensor(shape).prod())).reshape(2, *shape).to(dtype)
    labels = torch.tensor([3, 4]) if dtype != torch.int64 else inputs + 1
    dataset = Dataset(inputs, labels, inputs, labels, 10)
    back = SampleCoder(dataset).decode(SampleCoder(dataset).encode(Sample(inputs[1], labels[1])))
    assert torch.equal(back.input, inputs[1])
    assert torch.equal(back.label, labels[1])
    assert back.input.dtype == dtype


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ScenarioError, match="not a data centre with workers"):
        load(QUICKSTART, ["training.loading={kind: cached, source: osaka}"])
    with pytest.raises(ScenarioError, match="without waiting for its batch to be loaded"):
        load(QUICKSTART, ["training.loading=cached", "order={kind: p3, overlap: layers}"])
    loading = load(QUICKSTART, ["training.loading={kind: cached, rate: 5 Mbit/s}"]).training.loading
    assert loading.options.rate == 5e6


@for_each("loading", ["{kind: cached, spread: true}", "{kind: cached, source: frankfurt}"])
def test_who_has_others_samples_cannot_be_done_without(loading: str) -> None:
    """They would wait for samples of a worker that is gone."""
    texts = ["recovery={on_failure: continue}"]
    load(QUICKSTART, (*texts, "training.loading=cached"))
    with pytest.raises(ScenarioError, match="takes samples of others with it"):
        load(QUICKSTART, (*texts, f"training.loading={loading}"))
