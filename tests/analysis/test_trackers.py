"""What trackers are given is what the tables say; each tracker's own reader finds it again."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from analysis.export import FORMATS
from analysis.load import StoredRun, load_run
from analysis.trackers import scalars
from analysis.trackers.base import parameters
from testbed.errors import CapabilityError
from tests.for_each import for_each
from tests.results.fake_run import make_run


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
