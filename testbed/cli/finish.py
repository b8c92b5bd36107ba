"""Before a run, lay the run directory out; after it, write tables, reports and the figure."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.results import atomic, manifest, rundir
from testbed.results.rundir import RunDirectory
from testbed.run import record
from testbed.run.session import SessionResult


def run_path(plan: Plan, out: Path | None, now: datetime) -> Path:
    """Return the run directory: ``out``, or a new one below ``runs/``."""
    return out or rundir.new_path(plan.name, now, secrets.token_hex(2))


def prepare(
    path: Path, plan: Plan, *, scenario: bytes, resolved: str, capabilities: Mapping[str, Any], again: bool = False
) -> RunDirectory:
    """Claim the directory and write everything that is known before the run. Raise as ``rundir.claim``."""
    now = datetime.now(UTC)
    about = manifest.describe(seed=plan.seed, argv=sys.argv, capabilities=capabilities, now=now, code=plan.code)
    return record.prepare(path, plan, record.Texts(scenario, resolved, about), again)


def finish(
    run: RunDirectory, plan: Plan, outcome: SessionResult, *, started: str, duration_s: float,
    hurry: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Write everything that follows from the events, each file whole, and the final status last.

    Return the content of ``result.json``. If ``hurry()``, leave the figure out: ``testbed show RUN --figure`` draws it.
    """
    result = record.conclude(run, plan, outcome, started, duration_s)
    _write_summary(run)
    if result["rounds"] and not hurry():
        draw(run)
    run.set_status(outcome.status, result["plan_sha256"], outcome.message)
    return result


def draw(run: RunDirectory) -> Path:
    """Draw ``figure.png`` of a run that has completed rounds, and return its path."""
    from analysis.figures.run import draw as draw_figure
    from analysis.load import load_run

    with atomic.replacing(run.file("figure.png")) as temporary:
        draw_figure(load_run(run.path)).savefig(temporary, format="png")
    return run.file("figure.png")


def _write_summary(run: RunDirectory) -> None:
    from analysis.load import load_run
    from testbed.cli.digest import as_text, summary_of

    atomic.write_text(run.file("summary.txt"), as_text(summary_of(load_run(run.path))))
