"""Remove what dead runs left: temporary files; and give crashed runs their final status.

Emulated networks need no cleaning: they live in namespaces that die with their run, whatever ended it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = "remove what crashed runs left behind"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), metavar="DIR",
                        help="folder of run directories, or one of them; default: runs/")  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    from testbed.results import atomic, rundir

    root: Path = arguments.runs
    runs = [rundir.RunDirectory(root)] if rundir.is_run(root) else rundir.find_runs(root)
    buried = {str(run.path): state for run in runs if (state := rundir.bury(run))}
    files = [str(path) for run in runs for path in atomic.sweep(run.path)]
    if arguments.json:
        print(json.dumps({"kind": "clean", "crashed_runs": buried, "temporary_files": files}))
        return 0
    for path, state in buried.items():
        print(f"{path}: crashed run, now {state}")
    for path in files:
        print(f"removed {path}")
    if not (buried or files):
        print("nothing to clean")
    return 0
