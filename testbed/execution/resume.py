"""Where a run keeps its checkpoints, and how a run resumes another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError
from testbed.plan.model import Plan, job_sha256
from testbed.regular_file import copy_regular, read_regular
from testbed.results import atomic
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from testbed.engine.checkpoint import CheckpointFiles

FOLDER = "checkpoints"


def checkpoint_files(plan: Plan, directory: Path, report: Progress, with_states: bool = True) -> CheckpointFiles | None:
    """Return the checkpoint files of a run that keeps checkpoints or resumes from some; None for other runs.

    ``with_states``: see ``CheckpointFiles``.

    Raise ``ScenarioError`` if there are checkpoints but none is intact.
    """
    from testbed.engine.checkpoint import CheckpointFiles

    folder = directory / FOLDER
    if not plan.checkpoint_every and not folder.is_dir():
        return None
    files = CheckpointFiles(folder, plan, with_states)
    for reason in files.skipped:
        report({"kind": "warning", "t": 0.0, "node": "checkpoints", "message": f"not used: {reason}"})
    if files.skipped and files.resumed is None:
        raise ScenarioError(f"{folder}: no checkpoint is intact: {'; '.join(files.skipped)}")
    if files.resumed is not None:
        report({"kind": "stage", "name": f"resuming after round {files.resumed.round}"})
    return files


def take_over(before: Path, directory: Path) -> None:
    """Copy the checkpoints of the run ``before`` into the run ``directory``.

    Raise ``ScenarioError`` if there are none, or one cannot be read.
    """
    for path in find(before):
        copy = directory / FOLDER / path.name
        copy.mkdir(parents=True)
        file = path
        try:
            for file in sorted(path.iterdir()):
                copy_regular(file, copy / file.name)
            _mark(copy / "manifest.json")
        except OSError as error:
            raise ScenarioError(f"{file}: cannot be copied: {error} (remove the checkpoint {path})") from error


def _mark(manifest: Path) -> None:
    """Note that the checkpoint comes from another run, with another clock. A damaged manifest is refused later."""
    try:
        about = json.loads(manifest.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return
    if isinstance(about, dict):
        atomic.write_json(manifest, about | {"of_another_run": True})


def check_job(run: Path, plan: Plan) -> None:
    """Raise ``ScenarioError`` if the newest checkpoint of a run is of another job than ``plan``, or beyond its end.

    Damaged checkpoints, and those of a pipeline that was cut elsewhere, are refused later, when they are read.
    """
    manifest = find(run)[-1] / "manifest.json"
    try:
        about = json.loads(read_regular(manifest))
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(about, dict):
        return
    if not about.get("cut") and about.get("job_sha256", "") not in ("", job_sha256(plan)):
        raise ScenarioError(
            f"--resume {run}: its checkpoints belong to another job; resume the scenario that made it, with its seed, "
            f"nodes, model, data and techniques ({run / 'scenario.yaml'})"
        )
    done = about.get("round", -1) + 1
    if done > plan.training.rounds:
        raise ScenarioError(
            f"--resume {run}: its newest checkpoint has {done} rounds, more than training.rounds "
            f"({plan.training.rounds}); write more rounds, or resume an earlier run"
        )


def find(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first. Raise ``ScenarioError`` if it has none."""
    found = sorted((run / FOLDER).glob("ckpt-*"), key=lambda each: (len(each.name), each.name))
    if not found and not run.is_dir():
        raise ScenarioError(f"{run}: there is no such folder; name a run directory, such as runs/NAME")
    if not found:
        raise ScenarioError(
            f"{run}: holds no checkpoint; runs keep them if the scenario says 'checkpoint: {{every: 10}}', "
            "the first one after so many rounds"
        )
    return found
