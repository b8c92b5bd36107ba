"""Runs in other tools' formats: Chrome/Perfetto trace, CSV tables, TensorBoard."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from analysis.load import Run
from analysis.timeline import trace
from testbed.errors import CapabilityError
from testbed.results import atomic
from testbed.results.columns import TABLES


def perfetto(runs: list[Run], out: Path) -> list[Path]:
    """``<out>/trace.json``: all runs side by side, for ui.perfetto.dev."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "trace.json"
    atomic.write_text(path, json.dumps(trace(runs), separators=(",", ":"), allow_nan=False))
    return [path]


def tables_as_csv(runs: list[Run], out: Path) -> list[Path]:
    """``<out>/<run>/<table>.csv`` for every table, and ``columns.csv`` with each column's unit and meaning."""
    paths = [_columns(out)]
    for run in runs:
        folder = out / run.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            with atomic.replacing(folder / f"{name}.csv") as temporary:
                run.tables[name].to_csv(temporary, index=False)
            paths.append(folder / f"{name}.csv")
    return paths


def _columns(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "columns.csv"
    with atomic.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("table", "column", "type", "unit", "meaning"))
        for name, table in TABLES.items():
            writer.writerows((name, each.name, each.type, each.unit, each.meaning) for each in table.columns)
    return path


def tensorboard(runs: list[Run], out: Path) -> list[Path]:
    """``<out>/<run>/events.out.tfevents…``: loss, accuracy and link rates over rounds and time.

    Needs the package ``tensorboard``; raises ``CapabilityError`` without it. Steps are rounds for loss and accuracy,
    and milliseconds of training for link rates; wall times are seconds of training.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise CapabilityError("the package 'tensorboard' is missing: pip install tensorboard") from error
    paths = []
    for run in runs:
        folder = out / run.name
        with SummaryWriter(str(folder)) as writer:
            for tag, step, t_s, value in scalars(run):
                writer.add_scalar(tag, value, step, walltime=t_s - run.start_s)
        paths += sorted(folder.glob("events.out.tfevents.*"))
    return paths


def scalars(run: Run) -> list[tuple[str, int, float, float]]:
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


FORMATS: dict[str, Callable[[list[Run], Path], list[Path]]] = {
    "perfetto": perfetto,
    "csv": tables_as_csv,
    "tensorboard": tensorboard,
}
