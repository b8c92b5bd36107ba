"""Additions for runs of users' scripts: the files of failures, and a watch in each process that runs a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.plan.model import Plan
from testbed.results.failures import FOLDER, FailureFiles
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT

if TYPE_CHECKING:
    from testbed.engine.script.watch import ScriptWatch

SIMULATION = "simulation"  # name of the process that runs all nodes of a simulation


def is_scripted(plan: Plan) -> bool:
    """Return whether the workers of a run are users' scripts."""
    return bool(MODELS[plan.training.model.kind].takes == SCRIPT)


def failure_files(plan: Plan, directory: Path) -> FailureFiles | None:
    """Return the files of failures of a run in ``directory``; None if it runs no script."""
    script = plan.training.model.options.get("file", "")
    return FailureFiles(directory / FOLDER, Path(script)) if is_scripted(plan) else None


def watch_of(files: FailureFiles | None, process: str, own: bool) -> ScriptWatch | None:
    """Return a new ``ScriptWatch`` of this process; None without scripts."""
    from testbed.engine.script.watch import ScriptWatch

    return ScriptWatch(files, process, own) if files else None


def point_to_traceback(error: TestbedError, files: FailureFiles | None) -> None:
    """Add to an error the name of the file with the traceback, if the node that the error names has left one."""
    node = str(error).partition(":")[0]
    if files and " " not in node and files.of_node(node).is_file():
        error.add_note(files.note(node))
