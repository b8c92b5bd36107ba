"""Remove what dead runs left: temporary files and processes; and give crashed runs their final status.

Emulated networks need no cleaning: they live in namespaces that die with their run, whatever ended it. What else a run
makes is written down beforehand, and only that is removed, by exact name; nothing of a run that lives is touched.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = "remove what crashed runs left behind"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), metavar="DIR",
                        help="folder of run directories, or one of them; default: runs/")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed outside run directories")


def execute(arguments: argparse.Namespace) -> int:
    from emulation.journal import clean, leftovers
    from testbed.errors import ScenarioError
    from testbed.results import atomic, rundir

    if arguments.dry_run:
        return _list([str(leftover) for leftover in leftovers()], arguments.json)
    root: Path = arguments.runs
    if not root.exists() and root != Path("runs"):
        raise ScenarioError(f"{root}: no such folder")
    runs = [rundir.RunDirectory(root)] if rundir.is_run(root) else rundir.find_runs(root)
    buried = {str(run.path): state for run in runs if (state := rundir.bury(run))}
    files = [str(path) for run in runs for path in atomic.sweep(run.path)]
    left = [str(leftover) for leftover in clean()]
    if arguments.json:
        print(json.dumps({"kind": "clean", "crashed_runs": buried, "temporary_files": files, "leftovers": left}))
        return 0
    for path, state in buried.items():
        print(f"{path}: crashed run, now {state}")
    for path in (*files, *left):
        print(f"removed {path}")
    if not (buried or files or left):
        print("nothing to clean")
    return 0


def _list(left: list[str], as_json: bool) -> int:
    print(json.dumps({"kind": "clean", "leftovers": left}) if as_json else "\n".join(left) or "nothing to clean")
    return 0
