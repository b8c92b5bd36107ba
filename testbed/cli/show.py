"""Show a run: result, traffic, time per round, provenance, and which nodes waited for what."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.numbers import seconds

if TYPE_CHECKING:
    from analysis.load import StoredRun

HELP = "show a run: result, traffic, time, provenance, errors"
WAITS_SHOWN = 12
IDLE = "mail"  # name of a node's wait for its next message of any kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--figure", action="store_true", help="draw figure.png again")


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.load import load_run
    from testbed.display.summary import summary_of
    from testbed.results.job_index import has_jobs

    if has_jobs(arguments.run):
        return _jobs(arguments)
    run = load_run(arguments.run)
    if arguments.figure:
        _draw(run)
    if arguments.json:
        return _as_json(run)
    look.console().print(*summary_of(run), *_provenance(run), *_errors(run), *_waits(run), sep="\n")
    return 0


def _jobs(arguments: argparse.Namespace) -> Outcome:
    """Show the jobs of a run with several jobs."""
    from analysis.jobs import load_jobs
    from testbed.display.jobs import summary_of_jobs

    if arguments.figure:
        raise ScenarioError(f"--figure: {arguments.run} has several jobs; name one of {arguments.run / 'jobs'}")
    stored = load_jobs(arguments.run)
    if arguments.json:
        results = {name: run.result for name, run in stored.jobs.items()}
        sent = {name: stored.sent(name) for name in stored.jobs}
        longer = {name: stored.longer(name) for name in stored.alone}
        return {"kind": "jobs", "run": str(arguments.run), "jobs": results, "sent_bytes": sent, "longer": longer}
    look.console().print(*summary_of_jobs(stored), sep="\n")
    return 0


def _draw(run: StoredRun) -> None:
    from testbed.launch import draw
    from testbed.results.rundir import RunDirectory

    if not len(run.tables["rounds"]) and run.program is None:
        raise ScenarioError(f"{run.path}: no round was completed, so there is nothing to draw")
    draw(RunDirectory(run.path), run)


def _as_json(run: StoredRun) -> dict[str, Any]:
    from analysis.breakdown import per_node

    known = len(run.tables["rounds"]) and run.logs_work
    split = per_node(run.tables).to_dict("records") if known else []
    return {
        "kind": "run",
        "run": str(run.path),
        "status": run.status.state,
        "result": run.result,
        "fidelity": run.fidelity,
        "manifest": run.manifest,
        "time_per_round": split,
    }


def _provenance(run: StoredRun) -> list[Any]:
    about = run.manifest
    if not about:
        return []
    rows = [
        *run.provenance.items(),
        ("seed", str(about["seed"])),
        ("command", shlex.join(about["argv"])),
        (
            "back end",
            ", ".join([run.facilities.name, *(f"{key}: {value}" for key, value in about["capabilities"].items())]),
        ),
    ]
    return [look.table("ran on", "", "", rows=rows)]


def _errors(run: StoredRun) -> list[Any]:
    from testbed.results.events import STOPPED

    warnings = run.tables["warnings"]
    # without nodes that were only stopped after the failure of another
    errors = warnings[(warnings["kind"] == "error") & (warnings["cause"] != STOPPED)]
    if errors.empty:
        return []
    columns = (errors[name] for name in ("t_s", "node", "message", "cause"))
    rows = [(seconds(t), node, str(why or ""), str(cause or "")) for t, node, why, cause in zip(*columns, strict=True)]
    return [look.table("errors", ">at", "node", "message", "cause", rows=rows)]


def _waits(run: StoredRun) -> list[Any]:
    """Return the waits of all nodes, the longest in total first."""
    waits = run.tables["waits"]
    waits = waits[waits["waiting_for"] != IDLE]
    if waits.empty:
        return []
    # "value of key 3 after round 12 from …" counts as one wait for all rounds and keys
    named = waits.assign(waiting_for=waits["waiting_for"].str.replace(r"\b\d+\b", "N", regex=True))
    sums = named.groupby(["node", "waiting_for"])["duration_s"].agg(["sum", "count", "max"])
    longest = sums.sort_values("sum", ascending=False).head(WAITS_SHOWN).reset_index()
    rows = [
        (node, what, seconds(total), str(count), seconds(worst))
        for node, what, total, count, worst in longest.itertuples(index=False)
    ]
    return [look.table("waits, longest first", "node", "waited for", ">total", ">times", ">longest", rows=rows)]
