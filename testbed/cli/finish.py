"""Before and after a run: lays the run directory out, and afterwards makes tables, reports and the figure of it."""

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
    """Where the run goes: ``out``, or a new place below ``runs/``."""
    return out or rundir.new_path(plan.name, now, secrets.token_hex(2))


def prepare(
    path: Path, plan: Plan, *, scenario: bytes, resolved: str, capabilities: Mapping[str, Any], again: bool = False
) -> RunDirectory:
    """Claim the directory and write what is known before the run. Raises as ``rundir.claim``."""
    now = datetime.now(UTC)
    about = manifest.describe(seed=plan.seed, argv=sys.argv, capabilities=capabilities, now=now, code=plan.code)
    return record.prepare(path, plan, record.Texts(scenario, resolved, about), again)


def finish(
    run: RunDirectory, plan: Plan, outcome: SessionResult, *, started: str, duration_s: float,
    hurry: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Everything that follows from the events; returns the content of ``result.json``.

    The order is that of dependence, each file appears whole, and the final status is written last.
    With ``hurry()`` the figure is left out: it can be drawn again by ``testbed show RUN --figure``.
    """
    result = record.conclude(run, plan, outcome, started, duration_s)
    _write_summary(run)
    if result["rounds"] and not hurry():
        draw(run)
    run.set_status(outcome.status, result["plan_sha256"], outcome.message)
    return result


def draw(run: RunDirectory) -> Path:
    """``figure.png`` of a run that has completed rounds."""
    from analysis.figures.run import draw as draw_figure
    from analysis.load import load_run

    with atomic.replacing(run.file("figure.png")) as temporary:
        draw_figure(load_run(run.path)).savefig(temporary, format="png")
    return run.file("figure.png")


def _write_summary(run: RunDirectory) -> None:
    from analysis.load import load_run
    from testbed.cli.digest import as_text, summary_of

    atomic.write_text(run.file("summary.txt"), as_text(summary_of(load_run(run.path))))
