"""Names, opens and owns a run directory, which explains itself.

    scenario.yaml    as written                      events/<node>.jsonl  one JSON object a line, crash-safe
    resolved.yaml    with every default filled in    tables/<name>.parquet  the events as tidy tables (a cache)
    plan.json        what the back end executes      result.json          the answer; see testbed.results.summary
    manifest.json    versions, machine, seeds        fidelity.json        how far the answer can be trusted
    checkpoints/     to go on from, if the scenario asks for them
    status.json      state and owner                 summary.txt  figure.png  log  host.log

``status`` goes pending → running → done | degraded | failed | interrupted. A running one whose owner is dead is a
crashed run: it is never mistaken for a live one, because the owner is known by boot, process id and start time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.results import atomic, owner
from testbed.results.owner import ProcessOwner

FINISHED = ("done", "degraded", "failed", "interrupted")
_ENTRIES = ("scenario.yaml", "resolved.yaml", "plan.json", "manifest.json", "status.json", "events", "tables",
            "checkpoints",
            "result.json", "fidelity.json", "summary.txt", "figure.png", "log", "host.log")  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunStatus:
    """``state`` as in the module's docstring, or ``crashed``; ``plan_sha256`` names the Plan it was claimed for."""

    state: str
    plan_sha256: str = ""
    message: str = ""
    owner: ProcessOwner | None = None


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run. Making the object touches nothing."""

    path: Path

    def file(self, name: str) -> Path:
        """``file("plan.json")``; the names are those of the module's docstring."""
        assert name in _ENTRIES, name
        return self.path / name

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    def status(self) -> RunStatus:
        """What ``status.json`` says, with a dead owner seen as ``crashed``; ``pending`` where it says nothing yet."""
        try:
            fields = json.loads(self.file("status.json").read_text())
        except FileNotFoundError:
            return RunStatus("pending")
        who = fields.pop("owner")
        status = RunStatus(**fields, owner=ProcessOwner(**who) if who else None)
        if status.state in ("pending", "running") and not (status.owner and status.owner.alive()):
            return RunStatus("crashed", status.plan_sha256, status.message, status.owner)
        return status

    def set_status(self, state: str, plan_sha256: str, message: str = "") -> None:
        """Record ``state``, with the calling process as the owner until the run has finished."""
        assert state in ("pending", "running", *FINISHED), state
        who = None if state in FINISHED else asdict(owner.current())
        fields = {"state": state, "plan_sha256": plan_sha256, "message": message, "owner": who}
        atomic.write_json(self.file("status.json"), fields)


class AlreadyDone(Exception):
    """The directory holds a finished run of the same Plan."""


def new_path(name: str, now: datetime, token: str, root: Path = Path("runs")) -> Path:
    """``runs/2025-03-01-140502-quickstart-9f3a``: sorts by time, and two at once differ by their ``token``."""
    return root / f"{now:%Y-%m-%d-%H%M%S}-{name}-{token}"


def claim(path: Path, plan_sha256: str, again: bool = False) -> RunDirectory:
    """Make ``path`` a fresh, pending run directory that the calling process owns.

    What a crashed, failed or interrupted run left there is removed, and with ``again`` what a finished one left.
    Raises ``AlreadyDone``, or ``ScenarioError`` if the place is taken: by another live run, by a finished run of
    another Plan, or by files that are not a run's.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot make the run directory ({error.strerror}); give another --out") from error
    run = RunDirectory(path)
    with _locked(path):
        _refuse_if_taken(run, plan_sha256, again)
        _clear(run)
        run.set_status("pending", plan_sha256)
        run.events.mkdir()
    return run


def open_run(path: Path) -> RunDirectory:
    """A directory that holds a run. Raises ``ScenarioError`` if it does not."""
    if not is_run(path):
        raise ScenarioError(f"{path}: not a run directory (it has no plan.json and no status.json); see `testbed run`")
    return RunDirectory(path)


def is_run(path: Path) -> bool:
    """Whether ``path`` looks like a run directory."""
    return (path / "status.json").is_file() or (path / "plan.json").is_file()


def find_runs(root: Path) -> list[RunDirectory]:
    """The run directories directly below ``root``, oldest name first."""
    return [RunDirectory(path) for path in sorted(root.iterdir()) if is_run(path)] if root.is_dir() else []


def close_crashed(run: RunDirectory) -> str | None:
    """Give a crashed run its final status; returns that, or ``None`` if the run is not a crashed one.

    A result that was already written whole keeps its word; otherwise the run has failed.
    """
    with _locked(run.path):
        status = run.status()
        if status.state != "crashed":
            return None
        state = _state_of_result(run) or "failed"
        message = "its process ended without a word" if state == "failed" else status.message
        run.set_status(state, status.plan_sha256, message)
        return state


def _state_of_result(run: RunDirectory) -> str | None:
    try:
        result: dict[str, Any] = json.loads(run.file("result.json").read_text())
    except (OSError, ValueError):
        return None
    return str(result.get("status")) if result.get("status") in FINISHED else None


def _refuse_if_taken(run: RunDirectory, plan_sha256: str, again: bool) -> None:
    held = sorted(entry.name for entry in run.path.iterdir() if not atomic.is_temporary(entry.name))
    if held and not is_run(run.path):
        raise ScenarioError(
            f"{run.path}: is not empty and not a run directory (it holds {held[0]!r}); give another --out"
        )
    status = run.status()
    if status.state in ("pending", "running") and status.owner:
        raise ScenarioError(f"{run.path}: a run with process {status.owner.pid} is going on there; give another --out")
    if status.state in ("done", "degraded") and not again:
        if status.plan_sha256 == plan_sha256:
            raise AlreadyDone(str(run.path))
        raise ScenarioError(
            f"{run.path}: holds the finished run of another plan; give another --out, or --again to replace it"
        )


def _clear(run: RunDirectory) -> None:
    """Remove what runs write; whatever else somebody keeps there stays."""
    for entry in map(run.file, _ENTRIES):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    atomic.sweep(run.path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One claimant at a time; the lock goes with its process."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
