"""Runs for experiment trackers: TensorBoard, Weights & Biases, MLflow. All of them write files; none sends anything.

Each package is an extra of this project (`pip install -e ".[wandb]"` in a clone). A tracker gets the same scalars, the
scenario's techniques as parameters and the result's figures as a summary.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from analysis.load import StoredRun
from testbed.errors import CapabilityError

SUMMARY = ("accuracy", "rounds", "round_time_s", "time_to_target_s", "duration_s")


def tensorboard(runs: list[StoredRun], out: Path) -> list[Path]:
    """``<out>/<run>/events.out.tfevents…``: loss, accuracy and link rates over rounds and time.

    Steps are rounds for loss and accuracy, and milliseconds of training for link rates; wall times are seconds of
    training. Raises ``CapabilityError`` without the package, as the others do.
    """
    writers = _needed("torch.utils.tensorboard", "tensorboard")
    paths = []
    for run in runs:
        folder = out / run.name
        with writers.SummaryWriter(str(folder)) as writer:
            for tag, step, t_s, value in scalars(run):
                writer.add_scalar(tag, value, step, walltime=t_s - run.start_s)
        paths += sorted(folder.glob("events.out.tfevents.*"))
    return paths


def wandb(runs: list[StoredRun], out: Path) -> list[Path]:
    """``<out>/wandb/offline-run-…``, one a run; ``wandb sync`` uploads them where the user says so.

    Every scalar has a step of its own (``<tag>/step``) and the seconds of training (``<tag>/time_s``).
    """
    tracker = _needed("wandb", "wandb")
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        logged = tracker.init(
            project=run.plan["name"], name=run.name, dir=str(out), mode="offline", config=parameters(run)
        )
        rows = scalars(run)
        for tag in sorted({tag for tag, *_ in rows}):
            logged.define_metric(tag, step_metric=f"{tag}/step")
        for tag, step, t_s, value in rows:
            logged.log({tag: value, f"{tag}/step": step, f"{tag}/time_s": t_s - run.start_s})
        logged.summary.update(summary(run))
        logged.finish()
    return sorted((out / "wandb").glob("offline-run-*"))


def mlflow(runs: list[StoredRun], out: Path) -> list[Path]:
    """``<out>/mlflow.db``: an experiment a scenario; ``mlflow ui --backend-store-uri sqlite:///…`` shows it.

    Steps as in TensorBoard; timestamps are milliseconds of training.
    """
    tracker = _needed("mlflow", "mlflow")
    out.mkdir(parents=True, exist_ok=True)
    database = out.resolve() / "mlflow.db"
    client = tracker.MlflowClient(tracking_uri=f"sqlite:///{database}")
    for run in runs:
        name = run.plan["name"]
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        number = client.create_run(experiment, run_name=run.name).info.run_id
        metrics = [
            tracker.entities.Metric(_allowed(tag), value, round((t_s - run.start_s) * 1000), step)
            for tag, step, t_s, value in scalars(run)
        ]
        metrics += [tracker.entities.Metric(name, float(value), 0, 0) for name, value in summary(run).items()]
        chosen = [tracker.entities.Param(name, value) for name, value in parameters(run).items()]
        client.log_batch(number, params=chosen)
        for begin in range(0, len(metrics), 1000):  # its own limit
            client.log_batch(number, metrics=metrics[begin : begin + 1000])
        client.set_terminated(number)
    return [database]


def parameters(run: StoredRun) -> dict[str, str]:
    """What makes this run another than the next: back end, seed, and the technique on every axis with its options."""
    found = {"back_end": str(run.plan["back_end"]), "seed": str(run.plan["seed"])}
    for axis, chosen in run.plan["technique"].items():
        found[axis] = chosen["kind"]
        found |= {f"{axis}.{name}": str(value) for name, value in chosen["options"].items()}
    return found


def summary(run: StoredRun) -> dict[str, float]:
    """The figures of the result that are there."""
    result = run.result or {}
    return {name: result[name] for name in SUMMARY if result.get(name) is not None}


def scalars(run: StoredRun) -> list[tuple[str, int, float, float]]:
    """(tag, step, time on the run's clock in s, value) of everything that TensorBoard shows."""
    rounds, scores, links = (run.tables[name] for name in ("rounds", "accuracy", "links"))
    loss = rounds.dropna(subset="loss").groupby("round").agg({"loss": "mean", "t_s": "max"}).reset_index()
    rows = [("training/loss", *row) for row in zip(loss["round"].tolist(), loss["t_s"], loss["loss"], strict=True)]
    for name in ("accuracy", "loss"):
        known = scores.dropna(subset=name)
        columns = (known["round"].tolist(), known["snapshot_t_s"], known[name])
        rows += [(f"test/{name}", *row) for row in zip(*columns, strict=True)]
    for link, samples in links.dropna(subset="achieved_bps").groupby("link"):
        for t_s, rate_bps in zip(samples["t_s"], samples["achieved_bps"], strict=True):
            rows.append((f"link_mbit_per_s/{link}", round((t_s - run.start_s) * 1000), t_s, rate_bps / 1e6))
    return [(tag, int(step), float(t_s), float(value)) for tag, step, t_s, value in rows]


def _allowed(tag: str) -> str:
    """MLflow's names have no '>'."""
    return tag.replace(">", " to ")


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        cure = f"{sys.executable} -m pip install {package}"
        raise CapabilityError(f"the package '{package}' is missing: {cure}") from error
