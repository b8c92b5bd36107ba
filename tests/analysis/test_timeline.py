"""The exported trace, and what trackers are given, say what the run's tables say."""

import importlib.util
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from analysis.export import FORMATS
from analysis.load import StoredRun, load_run
from analysis.timeline import trace
from analysis.trackers import scalars
from analysis.trackers.base import parameters
from testbed.errors import CapabilityError
from tests.for_each import for_each
from tests.results.fake_run import make_run

Event = dict[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        load_run(make_run(folder / "emulated", back_end="emulate")),
        load_run(make_run(folder / "simulated", back_end="simulate")),
    ]


@pytest.fixture(scope="module")
def events(runs: list[StoredRun]) -> list[Event]:
    return json.loads(json.dumps(trace(runs), allow_nan=False))["traceEvents"]


def of_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def test_every_event_has_what_its_phase_needs(events: list[Event]) -> None:
    assert {event["ph"] for event in events} == {"X", "M", "C", "s", "f"}
    for event in events:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
    assert all(event["dur"] >= 0 for event in of_phase(events, "X"))
    assert all(isinstance(value, int | float) for event in of_phase(events, "C") for value in event["args"].values())


def test_slices_of_a_thread_nest(events: list[Event]) -> None:
    threads = defaultdict(list)
    for event in of_phase(events, "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        open_until: list[float] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


def test_arrows_come_in_pairs_and_bind_to_slices(events: list[Event]) -> None:
    begins = {event["id"]: event for event in of_phase(events, "s")}
    ends = {event["id"]: event for event in of_phase(events, "f")}
    assert len(begins) == len(of_phase(events, "s")) > 0
    assert begins.keys() == ends.keys()
    spans = defaultdict(list)
    for event in of_phase(events, "X"):
        spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for number, begin in begins.items():
        end = ends[number]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert begin["ts"] < end["ts"] and end["bp"] == "e"
        for event in (begin, end):
            assert any(a - 1e-3 <= event["ts"] < b for a, b in spans[event["pid"], event["tid"]])


def test_slices_are_those_of_the_tables(runs: list[StoredRun], events: list[Event]) -> None:
    pushes = [event for event in of_phase(events, "X") if event["name"].startswith("push") and event["cat"] == "send"]
    assert len(pushes) == sum((run.tables["transfers"]["message"] == "push").sum() for run in runs)
    steps = [event for event in of_phase(events, "X") if event["name"] == "step"]
    expected = sum(run.tables["computes"].query("work == 'step'")["duration_s"].sum() for run in runs)
    assert sum(event["dur"] for event in steps) / 1e6 == pytest.approx(expected, abs=1e-4)


def test_csv_has_every_table_and_explains_its_columns(runs: list[StoredRun], tmp_path: Path) -> None:
    import pandas as pd

    paths = FORMATS["csv"](runs[:1], tmp_path)
    assert {path.name for path in paths} >= {"columns.csv", "rounds.csv", "transfers.csv"}
    read = pd.read_csv(tmp_path / "emulated" / "rounds.csv")
    assert read["duration_s"].tolist() == pytest.approx(runs[0].tables["rounds"]["duration_s"].tolist())
    about = pd.read_csv(tmp_path / "columns.csv").set_index(["table", "column"])
    assert about.loc[("transfers", "payload_bytes"), "unit"] == "B"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return load_run(make_run(tmp_path_factory.mktemp("runs") / "emulated", back_end="emulate"))


def _accuracy(run: StoredRun) -> list[float]:
    return [float(value) for value in run.tables["accuracy"]["accuracy"]]


def test_scalars_are_those_of_the_tables(run: StoredRun) -> None:
    rows = scalars(run)
    assert [value for tag, _, _, value in rows if tag == "test/accuracy"] == _accuracy(run)
    losses = run.tables["rounds"].groupby("round")["loss"].mean().tolist()
    assert [value for tag, _, _, value in rows if tag == "training/loss"] == pytest.approx(losses)
    rates = [row for row in rows if row.tag == "link_mbit_per_s/virginia>tokyo"]
    assert [row.step for row in rates] == list(range(8)), "a rate for every round"
    assert all(5 < row.value < 20 for row in rates)
    assert {tag for tag, *_ in rows} >= {"training/loss", "link_mbit_per_s/virginia>tokyo"}


@for_each("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(
    name: str, run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(CapabilityError, match=f"{re.escape(sys.executable)} -m pip install {name}"):
        FORMATS[name]([run], tmp_path)


def test_tensorboard_reads_it(run: StoredRun, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (path,) = FORMATS["tensorboard"]([run], tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(path.parent))
    read.Reload()
    assert [event.value for event in read.Scalars("test/accuracy")] == pytest.approx(_accuracy(run))


def test_mlflow_reads_it(run: StoredRun, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    (path,) = FORMATS["mlflow"]([run], tmp_path)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}")
    experiment = client.get_experiment_by_name(run.plan["name"])
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "test/accuracy")
    assert [metric.value for metric in history] == pytest.approx(_accuracy(run))
    assert found.data.params["sync_tier2"] == parameters(run.plan)["sync_tier2"]


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="the package wandb is not installed")
def test_wandb_keeps_it_on_this_machine(run: StoredRun, tmp_path: Path) -> None:
    (path,) = FORMATS["wandb"]([run], tmp_path)
    assert path.is_dir() and list(path.glob("*.wandb"))
    written = b"".join(each.read_bytes() for each in path.glob("*.wandb"))
    assert b"test/accuracy" in written and json.dumps(parameters(run.plan)["sync_tier2"]).encode() in written
