"""After a run, write tables, reports and the figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.results import atomic
from testbed.results.rundir import RunDirectory
from testbed.run import record
from testbed.run.session import SessionResult


def finish(
    run: RunDirectory, plan: Plan, outcome: SessionResult, *, started: str, duration_s: float,
    hurry: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Write everything that follows from the events, each file whole, and the final status last.

    Return the content of ``result.json``. If ``hurry()``, leave the figure out: ``testbed show RUN --figure`` draws it.
    """
    result = record.conclude(run, plan, outcome, started, duration_s)
    from analysis.load import load_run
    from testbed.cli.digest import as_text, summary_of

    atomic.write_text(run.file("summary.txt"), as_text(summary_of(load_run(run.path))))
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
