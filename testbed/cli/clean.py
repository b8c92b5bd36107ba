"""Remove temporary files that dead runs left, and give crashed runs their final status.

Processes and emulated networks need no cleaning: the kernel ends them with their run, whatever ended it. Files are
removed by exact name; nothing of a live run is touched. A damaged run is reported and skipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.results import rundir
    from testbed.results.job_index import has_jobs, runs_in

    warnings: list[str] = []
    root: Path = arguments.runs
    if not root.exists() and root != Path("runs"):
        raise ScenarioError(f"{root}: no such folder")
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
    if arguments.json:
        return {"kind": "clean", "crashed_runs": crashed, "temporary_files": files, "warnings": warnings}
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    lines = [f"{path}: crashed run, now {state}" for path, state in crashed.items()]
    lines += [f"removed {path}" for path in files]
    print("\n".join(lines or ["nothing to clean"]))
    return 0
