"""Callbacks and live logs follow runs in both kinds of worlds, and can end them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import testbed
from analysis import trackers
from analysis.load import StoredRun
from analysis.trackers.base import Tracker
from testbed import api, callbacks
from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution import host, session
from testbed.plan.model import Plan
from testbed.results.rounds import CompletedRound
from testbed.results.scalars import SeriesValue
from tests.api.test_api import SMALL
from tests.cli.forked import command

LONG = api.load(SMALL, set={"training.rounds": 40})


class Notes(testbed.Callback):
    """Records the calls that it gets."""

    def __init__(self) -> None:
        self.rounds: list[CompletedRound] = []
        self.scores: list[tuple[int, float | None]] = []
        self.calls: list[str] = []

    def on_start(self, plan: Plan, directory: Path) -> None:
        self.calls.append(f"start {plan.name} {(directory / 'plan.json').is_file()}")

    def on_round(self, completed: CompletedRound) -> None:
        self.rounds.append(completed)

    def on_evaluate(self, evaluated: callbacks.EvaluatedRound) -> None:
        self.scores.append((evaluated.number, evaluated.accuracy))

    def on_end(self, run: StoredRun) -> None:
        self.calls.append(f"end {run.status.state} {run.result is not None}")


def test_callbacks_see_the_same_rounds_in_both_worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a process of its own takes two seconds to start
    monkeypatch.setattr(session, "run", lambda plan, directory, report, *_: host.attempt(plan, directory, report))
    notes = {on: Notes() for on in ("simulate", "local")}
    for on, callback in notes.items():
        run = api.run(SMALL, on=on, out=tmp_path / on, progress=False, callbacks=[callback])
        assert callback.calls == ["start small True", "end done True"]
        assert [completed.number for completed in callback.rounds] == [0, 1, 2, 3]
        assert [completed.samples for completed in callback.rounds] == [64] * 4
        assert callback.scores == list(
            zip(run.tables["accuracy"]["round"], run.tables["accuracy"]["accuracy"], strict=True)
        )
        assert callback.rounds[-1].t_s == pytest.approx(run.tables["rounds"]["t_s"].max(), abs=1e-6)
    simulated, local = ([completed.loss for completed in each.rounds] for each in notes.values())
    assert simulated == local


@pytest.mark.parametrize("on", ["simulate", pytest.param("local", marks=pytest.mark.slow)])  # 6 s
def test_a_callback_ends_the_run_with_its_results(on: str, tmp_path: Path) -> None:
    class Early(Notes):
        def on_evaluate(self, evaluated: callbacks.EvaluatedRound) -> None:
            super().on_evaluate(evaluated)
            raise testbed.StopRun("good enough")

    early = Early()
    run = api.run(LONG, on=on, out=tmp_path / "run", progress=False, callbacks=[early])
    assert run.status.state == "interrupted" and run.status.message == "stopped by Early.on_evaluate: good enough"
    assert len(early.scores) == 1 and early.calls == ["start small True", "end interrupted True"]
    assert run.result is not None and run.result["rounds"] < 40


def test_a_failing_callback_is_the_cause(tmp_path: Path) -> None:
    class Broken(testbed.Callback):
        def on_round(self, completed: CompletedRound) -> None:
            raise KeyError("loss")

    with pytest.raises(RunFailed, match=r"Broken.on_round raised KeyError: 'loss' \(run directory: ") as raised:
        api.run(LONG, out=tmp_path / "run", progress=False, callbacks=[Broken()])
    assert isinstance(raised.value.__cause__, KeyError)
    assert api.open_run(tmp_path / "run").status.state == "failed"


class Ends(testbed.Callback):
    """Raises in the end."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def on_end(self, run: StoredRun) -> None:
        raise self._error


def test_an_error_at_the_end_is_raised_after_all_followers_have_had_their_end(
    memory: type[Memory], tmp_path: Path
) -> None:
    notes, out = Notes(), tmp_path / "run"
    followers = [Ends(KeyError("loss")), Ends(ValueError("two")), notes]
    with (
        pytest.warns(UserWarning, match="Ends.on_end raised ValueError: two"),
        pytest.raises(RunFailed, match=r"Ends.on_end raised KeyError: 'loss' \(run directory: ") as raised,
    ):
        api.run(SMALL, out=out, progress=False, log=["tensorboard"], callbacks=followers)
    assert isinstance(raised.value.__cause__, KeyError)
    assert notes.calls[-1] == "end done True" and memory.closed is not None
    assert api.open_run(out).status.state == "done"


class Memory(Tracker):
    """A tracker in this process."""

    shares = True
    written: list[SeriesValue]
    closed: Mapping[str, float] | None

    def __init__(self, run: str, plan: Any, out: Path) -> None:
        Memory.written, Memory.closed, self.files = [], None, []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        Memory.written += scalars

    def close(self, summary: Mapping[str, float]) -> None:
        Memory.closed = summary


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Memory]]:
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", Memory)
    monkeypatch.setattr(trackers, "needed", lambda kind: None)
    monkeypatch.setattr(callbacks, "_POLL_EVERY_S", 0.0)
    yield Memory


def test_a_tracker_that_fails_is_given_up_with_a_warning(
    memory: type[Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Memory, scalars: Iterable[SeriesValue]) -> None:
        raise OSError("no space")

    monkeypatch.setattr(memory, "write", full)
    run = api.run(SMALL, out=tmp_path / "run", progress=False, log=["tensorboard"])
    assert run.status.state == "done"
    assert (run.path / "log").read_text().count("warning: --log tensorboard is given up: OSError: no space") == 1


def test_a_missing_package_or_unknown_tracker_is_told_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(CapabilityError, match=r"'wandb' is missing, the extra \[wandb\].* -m pip install wandb"):
        api.run(SMALL, out=tmp_path / "run", log=["wandb"])
    monkeypatch.undo()
    with pytest.raises(ScenarioError, match="tensorboard,wandb,mlflow"):
        api.run(SMALL, out=tmp_path / "run", log=["tensorbord"])
    (tmp_path / "s.yaml").write_text(LONG.to_yaml())
    done = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "run"), "--log", "tensorbord"])
    assert done.returncode == 2 and "--log tensorbord: not a tracker" in done.stderr
    assert not (tmp_path / "run").exists()
