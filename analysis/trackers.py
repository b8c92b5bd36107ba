"""Runs for experiment trackers: TensorBoard, Weights & Biases, MLflow; while a run runs, and afterwards.

All of them write files; none sends anything. Each package is an extra of this project (`pip install -e ".[wandb]"` in a
clone). A tracker gets the scalars of ``testbed.results.scalars``, the scenario's techniques as parameters, and the
figures of the result as a summary. The step of a scalar is its round, its time the seconds of training on the run's
clock.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from analysis.load import StoredRun, distinct_names
from testbed.errors import CapabilityError, ScenarioError
from testbed.results.scalars import Scalars, SeriesValue, tail_of

SUMMARY = ("accuracy", "rounds", "round_time_s", "time_to_target_s", "duration_s")
Plan = Mapping[str, Any]
"""The content of ``plan.json``."""


class Tracker(Protocol):
    """Writes one run in a tracker's format. ``out``: a folder of the run's own, or one for many; see ``shares``."""

    shares: ClassVar[bool]
    """Whether many runs go into one folder."""
    files: list[Path]
    """What it writes, known after ``close``."""

    def __init__(self, run: str, plan: Plan, out: Path) -> None: ...

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        """Write values; they can be looked at from now on."""

    def close(self, summary: Mapping[str, float]) -> None:
        """End the run."""


class TensorBoard(Tracker):
    """``<out>/events.out.tfevents…``; wall times are seconds of training."""

    shares = False

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        self._folder = out
        self._writer = needed("tensorboard").SummaryWriter(str(out))
        rows = "\n".join(f"| {name} | {value} |" for name, value in parameters(plan).items())
        self._writer.add_text("parameters", f"| parameter | value |\n|---|---|\n{rows}", 0, walltime=0.0)
        self.files: list[Path] = []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        for tag, step, t_s, value in scalars:
            self._writer.add_scalar(tag, value, step, walltime=t_s)
        self._writer.flush()

    def close(self, summary: Mapping[str, float]) -> None:
        rows = "\n".join(f"| {name} | {value:g} |" for name, value in summary.items())
        self._writer.add_text("summary", f"| figure | value |\n|---|---|\n{rows}", 0, walltime=0.0)
        self._writer.close()
        self.files = sorted(self._folder.glob("events.out.tfevents.*"))


class Wandb(Tracker):
    """``<out>/wandb/offline-run-…``; ``wandb sync`` uploads it where the user says so.

    Every series has a step (``<tag>/step``) and the seconds of training (``<tag>/time_s``) of its own.
    """

    shares = True

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        settings = {"project": plan["name"], "name": run, "dir": str(out), "config": parameters(plan)}
        package = needed("wandb")
        quiet = package.Settings(silent=True)  # the terminal is the run's
        self._run = package.init(**settings, mode="offline", reinit="create_new", settings=quiet)
        self._known: set[str] = set()
        self.files: list[Path] = []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        for tag, step, t_s, value in scalars:
            if tag not in self._known:
                self._run.define_metric(tag, step_metric=f"{tag}/step")
                self._known.add(tag)
            self._run.log({tag: value, f"{tag}/step": step, f"{tag}/time_s": t_s})

    def close(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self.files = [Path(self._run.dir).parent]
        self._run.finish()


class MLflow(Tracker):
    """``<out>/mlflow.db``: an experiment a scenario; ``mlflow ui --backend-store-uri sqlite:///…`` shows it.

    Timestamps are milliseconds of training.
    """

    shares = True

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        self._mlflow = needed("mlflow")
        out.mkdir(parents=True, exist_ok=True)
        database = out.resolve() / "mlflow.db"
        self._client = self._mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
        known = self._client.get_experiment_by_name(plan["name"])
        experiment = known.experiment_id if known else self._client.create_experiment(plan["name"])
        self._number = self._client.create_run(experiment, run_name=run).info.run_id
        chosen = [self._mlflow.entities.Param(name, value) for name, value in parameters(plan).items()]
        self._client.log_batch(self._number, params=chosen)
        self.files = [database]

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        entity = self._mlflow.entities.Metric  # whose name must not have a '>'
        metrics = [
            entity(tag.replace(">", " to "), value, round(t_s * 1000), step) for tag, step, t_s, value in scalars
        ]
        for begin in range(0, len(metrics), 1000):  # its own limit
            self._client.log_batch(self._number, metrics=metrics[begin : begin + 1000])

    def close(self, summary: Mapping[str, float]) -> None:
        self.write(SeriesValue(name, 0, 0.0, float(value)) for name, value in summary.items())
        self._client.set_terminated(self._number)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}
_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def check(kinds: Iterable[str]) -> None:
    """Raise ``ScenarioError`` for an unknown tracker, and ``CapabilityError`` without its package."""
    if isinstance(kinds, str):
        raise ScenarioError(f"log: expected a list of trackers, got {kinds!r}; write [{kinds!r}]")
    for kind in kinds:
        if kind not in TRACKERS:
            raise ScenarioError(f"--log {kind}: not a tracker; write one or more of {','.join(TRACKERS)}")
        needed(kind)


def export(kind: str, runs: list[StoredRun], out: Path) -> list[Path]:
    """Write runs that have ended, equal names with a number; return the files.

    Raise ``CapabilityError`` without the tracker's package.
    """
    check([kind])
    files: dict[Path, None] = {}
    for run, name in zip(runs, distinct_names(runs), strict=True):
        chosen = TRACKERS[kind]
        tracker = chosen(name, run.plan, out if chosen.shares else out / name)
        tracker.write(scalars(run))
        tracker.close(summary(run.result))
        files |= dict.fromkeys(tracker.files)
    return list(files)


def scalars(run: StoredRun) -> list[SeriesValue]:
    """Return all scalars of a run that has ended."""
    series = Scalars(run.plan)
    found = [scalar for event in tail_of(run.path, run.plan).rest() for scalar in series.take(event)]
    return [*found, *series.rest()]


def parameters(plan: Plan) -> dict[str, str]:
    """Return what tells runs apart: back end, seed, and the technique on every axis with its options."""
    found = {"back_end": str(plan["back_end"]), "seed": str(plan["seed"])}
    for axis, chosen in plan["technique"].items():
        found[axis] = chosen["kind"]
        found |= {f"{axis}.{name}": str(value) for name, value in chosen["options"].items()}
    return found


def summary(result: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the figures of a result that are there."""
    return {name: result[name] for name in SUMMARY if result and result.get(name) is not None}


def needed(kind: str) -> Any:
    """Return the module of a tracker. Raise ``CapabilityError`` if its package is missing."""
    try:
        return importlib.import_module(_MODULES[kind])
    except ImportError as error:
        cure = f"{sys.executable} -m pip install {kind}"
        raise CapabilityError(f"the package '{kind}' is missing, the extra [{kind}] of this project: {cure}") from error
