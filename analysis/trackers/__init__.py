"""Exports runs to experiment trackers (TensorBoard, Weights & Biases, MLflow), during a run or afterwards.

All of them write files, and none sends anything. Each package is an extra of this project (`pip install -e ".[wandb]"`
in a clone). A tracker gets the scalars of ``testbed.results.scalars``, the scenario's techniques as parameters, and
numbers of the result as a summary. The step of a scalar is its round; its time is seconds of training on the run's
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.load import StoredRun, distinct_names
from analysis.trackers.base import Tracker, needed
from analysis.trackers.mlflow import MLflow
from analysis.trackers.tensorboard import TensorBoard
from analysis.trackers.wandb import Wandb
from testbed.errors import ScenarioError
from testbed.results.scalars import Scalars, SeriesValue, tail_of

SUMMARY = ("accuracy", "rounds", "round_time_s", "time_to_target_s", "duration_s")
TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


def check(kinds: Iterable[str]) -> None:
    """Raise ``ScenarioError`` for an unknown tracker, and ``CapabilityError`` if its package is missing."""
    if isinstance(kinds, str):
        raise ScenarioError(f"log: expected a list of trackers, got {kinds!r}; write [{kinds!r}]")
    for kind in kinds:
        if kind not in TRACKERS:
            raise ScenarioError(f"--log {kind}: not a tracker; write one or more of {','.join(TRACKERS)}")
        needed(kind)


def export(kind: str, runs: list[StoredRun], out: Path) -> list[Path]:
    """Write runs that have ended to a tracker; return the files. Runs with equal names get a number appended.

    Raise ``CapabilityError`` if the tracker's package is missing.
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


def summary(result: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the numbers of ``SUMMARY`` that a result has."""
    return {name: result[name] for name in SUMMARY if result and result.get(name) is not None}
