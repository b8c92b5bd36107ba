"""Killed at any moment and resumed, a run ends with the bits of one that was never disturbed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.engine.checkpoint import CheckpointFiles, Members
from testbed.engine.evaluation import Evaluation
from testbed.engine.roles import make_role
from testbed.errors import ScenarioError, WaitTimeout
from testbed.execution import host
from testbed.execution.resume import check_job, take_over
from testbed.plan.build import build_plan
from testbed.plan.instant import Instant
from testbed.plan.model import Plan
from testbed.results import summary, tables
from testbed.results.events import read
from testbed.scenario.load import load
from testbed.simulation.run import simulate
from testbed.target import ACCURACY, Target
from testbed.training.learner import Score
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

JOB = (
    "training.model={kind: mlp, hidden: 8}",
    "training.rounds=13",
    "training.evaluate_every=4",
    "device.variation=30 %",
    "checkpoint.every=3",
)
ADAM = "optimizer={kind: adam, learning_rate: 0.01}"
HFA = ("sync={kind: hfa, k1: 2, k2: 2}", "optimizer={kind: adam, learning_rate: 0.01, at: worker}")


def plan_of(*overrides: str) -> Plan:
    return build_plan(load(THREE_SITES, (*JOB, *overrides)), "simulate")


def run(plan: Plan, directory: Path, on_progress: Any = lambda line: None) -> tuple[set[str], CheckpointFiles]:
    """Simulate in ``directory``, from what checkpoints it holds; hashes of all nodes that hold parameters."""
    files = CheckpointFiles(directory / "checkpoints", plan)
    for path in (directory / "events").glob("*"):
        path.unlink()
    exits = simulate(plan, partial(make_role, files=files), directory, on_progress)
    assert not [end.error for end in exits.values() if end.error is not None], exits
    return {event["parameters_sha256"] for event in events(directory, "final") if "parameters_sha256" in event}, files


def events(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read(directory / "events") if event["kind"] == kind]


def run_and_be_killed(plan: Plan, directory: Path, after_writes: int) -> None:
    """In a process of its own, which kills itself with SIGKILL in the middle of writing a checkpoint's file."""
    pid = os.fork()
    if pid == 0:
        try:
            _die_at_write(after_writes)
            run(plan, directory)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def _die_at_write(count: int) -> None:
    left = [count]
    whole = CheckpointFiles.write

    def write(self: CheckpointFiles, round_: int, node: str, state: Any) -> str:
        left[0] -= 1
        if left[0] < 0:
            self._temporary(round_).mkdir(parents=True, exist_ok=True)
            (self._temporary(round_) / "torn.pt").write_bytes(b"half of")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)
        return whole(self, round_, node, state)

    CheckpointFiles.write = write  # type: ignore[method-assign]


def test_killed_and_resumed_is_undisturbed(tmp_path: Path) -> None:
    """In the middle of the third checkpoint. All techniques, at any instant here: test_every_technique.py"""
    plan = plan_of(ADAM, "data_centers[hub].global_servers=2", "shard=multigps")
    undisturbed, _ = run(plan, tmp_path / "whole")
    savers = len([node for node in plan.nodes if node.role != "scheduler" and (node.role != "worker" or node.trains)])
    run_and_be_killed(plan, tmp_path / "killed", 2 * savers + 2)
    resumed, files = run(plan, tmp_path / "killed")
    assert files.resumed is not None
    assert files.resumed.round == 5
    assert resumed == undisturbed


def test_a_score_that_is_not_due_at_a_checkpoint_keeps_its_epoch(tmp_path: Path) -> None:
    plan = plan_of(*HFA, "training.batch=64")
    run(plan, tmp_path)
    whole = {event["round"]: event["epoch"] for event in events(tmp_path, "evaluate")}
    _, files = run(plan, tmp_path)
    assert files.resumed is not None and files.resumed.round == 11
    resumed = {event["round"]: event["epoch"] for event in events(tmp_path, "evaluate")}
    assert resumed and all(whole[round_] == epoch > 1 for round_, epoch in resumed.items())


def test_times_of_a_resumed_run_count_from_the_first_start(tmp_path: Path) -> None:
    """A score that was due after the checkpoint reaches the target: also in a run of another directory."""
    plan = plan_of(ADAM, "training.target_accuracy=0.999")
    (tmp_path / "resumed").mkdir()
    results = {}
    for name in ("whole", "resumed"):
        if name == "resumed":
            take_over(tmp_path / "whole", tmp_path / "resumed")
        run(plan, tmp_path / name)
        frames = tables.read(tmp_path / name)
        scores = frames["accuracy"]
        taken_s = scores.loc[scores["round"] == 11, "snapshot_t_s"].iloc[0]
        assert scores["snapshot_t_s"].min() <= taken_s
        start_s = summary.first_start_s(frames["training"])
        reached_s = summary.time_to_target_s(scores[scores["round"] >= 11], Target(ACCURACY, 0.0), start_s)
        results[name] = (start_s, reached_s, float(frames["rounds"]["t_s"].max()) - start_s)
    assert results["resumed"] == results["whole"]
    training = tables.read(tmp_path / "resumed")["training"]
    assert training["resumed_round"].tolist() == [11] and training["trained_s"].iloc[0] > 0


class RealWorld:
    """What ``Evaluation`` needs of a world whose clock is ``now_s``."""

    node = "hub/worker0"

    def __init__(self, now_s: float) -> None:
        self.now_s, self.recorded = now_s, list[dict[str, Any]]()

    def now(self) -> float:
        return self.now_s

    def future(self) -> Any:
        return asyncio.get_running_loop().create_future()

    def aside(self, function: Callable[[], Any]) -> Any:
        future = self.future()
        future.set_result(function())
        return future

    async def wait(self, future: Any, waiting_for: str) -> Any:
        return await future

    def record(self, kind: str, **fields: Any) -> None:
        self.recorded.append({"kind": kind, **fields})


@for_each(("another", "taken_s"), [(False, 5.0), (True, 1.5)])
def test_a_snapshot_of_another_clock_keeps_its_age(another: bool, taken_s: float, tmp_path: Path) -> None:
    """A restart goes on with the run's own clock, at 20 s; another run begins with its own, at 2 s."""
    plan = build_plan(load(THREE_SITES, JOB), "local")
    learner: Any = SimpleNamespace(epoch=0, values=lambda: [], evaluate=lambda values: Score(0.9, 0.1, 0.1))
    files = CheckpointFiles(tmp_path / "one" / "checkpoints", plan)
    digests = {"a": files.write(3, "a", {"round": 3})}
    files.commit(3, digests, Instant(6.0), Members(trained_s=3.0))
    directory = tmp_path / "one"
    if another:
        directory = tmp_path / "other"
        directory.mkdir()
        take_over(tmp_path / "one", directory)

    async def resumed() -> list[dict[str, Any]]:
        before, world = RealWorld(5.0), RealWorld(2.0 if another else 20.0)
        first, second = (Evaluation(each, plan, learner) for each in (before, world))  # type: ignore[arg-type]
        first.after_round(3)
        before.now_s = 5.5
        second.load_state(await first.state())
        second.begin(13, 4, resumed=CheckpointFiles(directory / "checkpoints", plan).resumed)
        await second.finish(3)
        return world.recorded

    train, score = asyncio.run(resumed())
    assert (train["kind"], train["resumed_round"], train["trained_s"]) == ("train", 3, 3.0)
    assert (score["kind"], score["snapshot_t"]) == ("evaluate", taken_s)


@pytest.mark.slow  # 3 s
def test_random_cuts_of_one_run(tmp_path: Path) -> None:
    """Each time from where the last was killed: as often as needed, to the same bits."""
    plan = plan_of(*HFA, "training.rounds=14", "checkpoint.every=1")
    undisturbed, _ = run(plan, tmp_path / "whole")
    chance = random.Random(4)
    for _ in range(3):
        run_and_be_killed(plan, tmp_path / "killed", chance.randrange(9, 24))
    resumed, files = run(plan, tmp_path / "killed")
    assert files.resumed is not None
    assert files.resumed.round >= 2
    assert resumed == undisturbed


def test_a_reached_target_ends_everybody_though_others_wait_for_a_checkpoint(tmp_path: Path) -> None:
    plan = plan_of(
        "sync=mixedsync",
        "training.target_accuracy=20 %",
        "training.rounds=60",
        "optimizer={kind: sgd, learning_rate: 0.1}",
        "data_centers[east].device.speed=0.2",
        "checkpoint.every=5",
    )
    run(plan, tmp_path)
    assert max(event["round"] for event in events(tmp_path, "round")) < 59


def test_workers_who_wait_for_a_checkpoint_take_part_in_the_average_at_the_end(tmp_path: Path) -> None:
    """In AD-PSGD the slow first worker reaches the target, and averages with the others before all have finished."""
    plan = plan_of(
        "paradigm={kind: gossip, algorithm: adpsgd}",
        "training.target_accuracy=20 %",
        "training.rounds=60",
        "training.evaluate_every=2",
        "optimizer={kind: sgd, learning_rate: 0.02}",
        "data_centers[hub].device.speed=0.3",
        "checkpoint.every=20",
    )
    run(plan, tmp_path)
    assert max(event["round"] for event in events(tmp_path, "round")) < 59


def test_a_damaged_checkpoint_is_skipped_with_the_reason(tmp_path: Path) -> None:
    plan = plan_of(ADAM)
    undisturbed, _ = run(plan, tmp_path)
    newest = tmp_path / "checkpoints" / "ckpt-000012" / "east.worker1.pt"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    resumed, files = run(plan, tmp_path)
    assert files.resumed is not None
    assert files.resumed.round == 8
    assert "ckpt-000012: east.worker1.pt is damaged (its SHA-256 differs)" in files.skipped[0]
    assert resumed == undisturbed


def test_a_new_checkpoint_is_kept_beside_later_ones_that_are_damaged(tmp_path: Path) -> None:
    """A run that resumes from an earlier one may write more often than before."""
    plan = plan_of(ADAM, "checkpoint.every=4")
    run(plan, tmp_path)
    folder = tmp_path / "checkpoints"
    for path in folder.iterdir():
        (path / "manifest.json").write_text("{")
    run(plan_of(ADAM, "checkpoint.every=3", "training.rounds=4"), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["ckpt-000003", "ckpt-000008", "ckpt-000012"]


def test_checkpoints_are_told_apart_beyond_a_million_rounds(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, plan_of())
    for round_ in (999_997, 999_998, 999_999):
        digests = {"a": files.write(round_, "a", {"round": round_})}
        files.commit(round_, digests, Instant(0.0), Members())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-1000000", "ckpt-999999"]
    resumed = CheckpointFiles(tmp_path, plan_of()).resumed
    assert resumed is not None and resumed.round == 999_999


def test_another_jobs_checkpoint_is_refused(tmp_path: Path) -> None:
    run(plan_of(ADAM), tmp_path)
    with pytest.raises(ScenarioError, match="belongs to another job"):
        CheckpointFiles(tmp_path / "checkpoints", plan_of(ADAM, "seed=2"))
    with pytest.raises(ScenarioError, match="its checkpoints belong to another job"):
        check_job(tmp_path, plan_of(ADAM, "seed=2"))
    longer = plan_of(ADAM, "training.rounds=20")
    check_job(tmp_path, longer)
    assert CheckpointFiles(tmp_path / "checkpoints", longer).resumed is not None


@for_each("cut", ["paradigm.cuts=1", "paradigm.stages=4", "paradigm.placement={kind: listed, order: west east hub}"])
def test_a_checkpoint_of_another_cut_says_so(tmp_path: Path, cut: str) -> None:
    made_by = ("paradigm={kind: pipeline, stages: 2, micro_batches: 4}", ADAM, "training.model=cnn")
    files = CheckpointFiles(tmp_path, plan_of(*made_by))
    files.commit(1, {"hub/worker0": files.write(1, "hub/worker0", {})}, Instant(0.0), Members())
    assert CheckpointFiles(tmp_path, plan_of(*made_by)).resumed is not None
    with pytest.raises(ScenarioError, match=r"another cut of the model: .* has segments \d+-\d+ there, and "):
        CheckpointFiles(tmp_path, plan_of(*made_by, cut))


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, tries = CheckpointFiles.write, []

    def write(self: CheckpointFiles, round_: int, node: str, state: Any) -> str:
        tries.append(node)
        if round_ == 5 and node == "west/server0":
            raise OSError(28, "No space left on device")
        return whole(self, round_, node, state)

    monkeypatch.setattr(CheckpointFiles, "write", write)
    run(plan_of(ADAM, "training.rounds=9"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["ckpt-000003"]
    (warning,) = (event for event in events(tmp_path, "warning") if "checkpoint" in event["message"])
    assert "No space left" in warning["message"]


@for_each("make", [os.mkfifo, os.mkdir, partial(os.symlink, "/dev/zero"), partial(os.symlink, "/")])
def test_a_checkpoint_that_cannot_be_read_is_not_taken_over(tmp_path: Path, make: Callable[[Path], None]) -> None:
    checkpoint = tmp_path / "before" / "checkpoints" / "ckpt-000003"
    checkpoint.mkdir(parents=True)
    make(checkpoint / "virginia.worker0.pt")
    with pytest.raises(ScenarioError, match=r"virginia\.worker0\.pt: cannot be copied: .*(not a regular|directory)"):
        take_over(tmp_path / "before", tmp_path / "run")


def test_a_resumed_run_that_cannot_advance_says_where_it_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(*_: object) -> None:
        raise WaitTimeout("west/worker0", "value of key 0", 1.0, 2.0)

    monkeypatch.setattr("testbed.execution.simulate.run_jobs", waits)
    plan = plan_of(ADAM)
    assert "checkpoint" not in host.attempt(plan, tmp_path, lambda event: None).message
    (tmp_path / "checkpoints").mkdir()
    said = host.attempt(plan, tmp_path, lambda event: None).message
    assert f"the run went on from a checkpoint in {tmp_path / 'checkpoints'}" in said
