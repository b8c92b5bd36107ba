"""Remove what dead runs left: temporary files and processes; and give crashed runs their final status.

Emulated networks need no cleaning: they live in namespaces that die with their run, whatever ended it. What else a run
makes is written down beforehand, and only that is removed, by exact name; nothing of a run that lives is touched.
A record that is not as a run writes it is reported and skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HELP = "remove what crashed runs left behind"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), metavar="DIR",
                        help="folder of run directories, or one of them; default: runs/")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed outside run directories")


def execute(arguments: argparse.Namespace) -> int:
    from emulation.journal import clean, leftovers
    from testbed.errors import ScenarioError
    from testbed.results import atomic, rundir

    warnings: list[str] = []
    if arguments.dry_run:
        left = [str(leftover) for leftover in leftovers(warnings.append)]
        return _list({"leftovers": left}, warnings, left or ["nothing to clean"], arguments.json)
    root: Path = arguments.runs
    if not root.exists() and root != Path("runs"):
        raise ScenarioError(f"{root}: no such folder")
    left = [str(leftover) for leftover in clean(warnings.append)]
    runs = [rundir.RunDirectory(root)] if rundir.is_run(root) else rundir.find_runs(root)
    buried = {str(run.path): state for run in runs if (state := rundir.bury(run))}
    files = [str(path) for run in runs for path in atomic.sweep(run.path)]
    done = {"crashed_runs": buried, "temporary_files": files, "leftovers": left}
    lines = [f"{path}: crashed run, now {state}" for path, state in buried.items()]
    lines += [f"removed {path}" for path in (*files, *left)]
    return _list(done, warnings, lines or ["nothing to clean"], arguments.json)


def _list(found: dict[str, Any], warnings: list[str], lines: list[str], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"kind": "clean", **found, "warnings": warnings}))
        return 0
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print("\n".join(lines))
    return 0
