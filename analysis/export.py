"""Runs in other tools' formats: Perfetto, CSV tables, execution traces, and the trackers of `analysis.trackers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from analysis import job_trace, trackers
from analysis.load import StoredRun, distinct_names
from analysis.timeline import trace
from testbed.results import atomic
from testbed.results.columns import TABLES


def perfetto(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write ``<out>/trace.json`` with all runs side by side, for ui.perfetto.dev."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "trace.json"
    atomic.write_text(path, json.dumps(trace(runs), separators=(",", ":"), allow_nan=False))
    return [path]


def tables_as_csv(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write ``<out>/<run>/<table>.csv`` for every table, and ``columns.csv`` with each column's unit and meaning.

    If several runs have equal names, the later ones have a number appended.
    """
    about = [
        (name, each.name, each.type, each.unit, each.meaning)
        for name, table in TABLES.items()
        for each in table.columns
    ]
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "columns.csv"]
    described = pd.DataFrame(about, columns=["table", "column", "type", "unit", "meaning"])
    atomic.write_text(paths[0], described.to_csv(index=False))
    for run, run_name in zip(runs, distinct_names(runs), strict=True):
        folder = out / run_name
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            with atomic.replacing(folder / f"{name}.csv") as temporary:
                run.tables[name].to_csv(temporary, index=False)
            paths.append(folder / f"{name}.csv")
    return paths


TRACES = {"chakra": job_trace.chakra, "goal": job_trace.goal}
FORMATS: dict[str, Callable[[list[StoredRun], Path], list[Path]]] = {
    "perfetto": perfetto,
    "csv": tables_as_csv,
    **TRACES,
    **{kind: partial(trackers.export, kind) for kind in trackers.TRACKERS},
}
