"""Remove what dead runs left: temporary files and processes; and give crashed runs their final status.

Emulated networks need no cleaning: they live in namespaces that end with their run, whatever ended it. Everything else
that a run makes is recorded beforehand, and only that is removed, by exact name; nothing of a live run is touched. An
invalid record or a damaged run is reported and skipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from testbed.cli.options import Outcome
from testbed.errors import ScenarioError, TestbedError

HELP = "remove what crashed runs left behind"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="?",
        default=Path("runs"),
        metavar="DIR",
        help="folder of run directories, or one of them; default: runs/",
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed outside run directories")


def execute(arguments: argparse.Namespace) -> Outcome:
    from emulation.journal import clean, leftovers
    from testbed.results import rundir
    from testbed.results.job_index import has_jobs, runs_in

    warnings: list[str] = []
    if arguments.dry_run:
        left = [str(leftover) for leftover in leftovers(warnings.append)]
        return _report({"leftovers": left}, warnings, left, arguments.json)
    root: Path = arguments.runs
    if not root.exists() and root != Path("runs"):
        raise ScenarioError(f"{root}: no such folder")
    left = [str(leftover) for leftover in clean(warnings.append)]
    crashed: dict[str, str] = {}
    files: list[str] = []
    is_one = rundir.is_run(root) or has_jobs(root)
    for path in [root] if is_one else sorted(root.iterdir()) if root.is_dir() else []:
        try:
            for place in filter(rundir.is_run, runs_in(path)):
                if state := rundir.close_crashed(rundir.RunDirectory(place)):
                    crashed[str(place)] = state
                files += map(str, rundir.remove_leftovers(rundir.RunDirectory(place)))
        except TestbedError as error:
            warnings.append(str(error))
        except OSError as error:  # such as a run of another user
            warnings.append(f"{path}: {(error.strerror or str(error)).lower()}; it is skipped")
    found = {"crashed_runs": crashed, "temporary_files": files, "leftovers": left}
    lines = [f"{path}: crashed run, now {state}" for path, state in crashed.items()]
    return _report(found, warnings, lines + [f"removed {path}" for path in (*files, *left)], arguments.json)


def _report(found: dict[str, Any], warnings: list[str], lines: list[str], as_json: bool) -> Outcome:
    if as_json:
        return {"kind": "clean", **found, "warnings": warnings}
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print("\n".join(lines or ["nothing to clean"]))
    return 0
