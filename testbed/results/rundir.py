"""Names, opens and claims run directories.

    scenario.yaml    as written                      events/  one JSON object a line; see testbed.results.events
    resolved.yaml    with every default filled in    tables/<name>.parquet  the events as tidy tables (a cache)
    plan.json        what the back end executes      result.json          the results; see testbed.results.summary
    manifest.json    versions, machine, seeds        fidelity.json        the fidelity report
    checkpoints/     if the scenario asks for them    logs/  output of a user's program, a file per process
    failures/        tracebacks of failed scripts, <node>.txt
    status.json      state and owner                 summary.txt  figure.png  log  host.log
    tensorboard/     wandb/  mlflow/  output of --log

``status`` goes pending → running → done | reduced | diverged | failed | interrupted. A run in progress has crashed if
its owner, a process identified by boot, process number and start time, is dead. Whether an owner on another machine or
in another container lives is unknown; it counts as dead when nothing in the directory has changed for an hour.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import msgspec

from testbed.errors import FULL, ScenarioError, TestbedError
from testbed.process_id import RunOwner
from testbed.regular_file import read_regular
from testbed.results import COMPLETED, FINISHED, atomic, owner

_ENTRIES = (
    "scenario.yaml",
    "resolved.yaml",
    "plan.json",
    "manifest.json",
    "status.json",
    "events",
    "tables",
    "checkpoints",
    "result.json",
    "fidelity.json",
    "summary.txt",
    "figure.png",
    "log",
    "logs",
    "host.log",
    "failures",
    "tensorboard",
    "wandb",
    "mlflow",
)
_OF_KERNEL = (".progress", ".clock", ".exact.json", ".kernel.log")  # files of an exact run, until it ends

_RESERVE = ".status.reserve"
_RESERVE_BYTES = 8192
_LONGEST_MESSAGE_BYTES = 6000  # of a message as JSON, so that the status fits into the reserve
State = Literal["pending", "running", "crashed", "done", "reduced", "diverged", "failed", "interrupted"]
_LARGEST_BYTES = 128 << 20  # limit of a JSON file: thirty times the size of a plan of ten thousand data centres


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run. ``state`` is one of those in the module's docstring, or ``crashed``."""

    state: State
    plan_sha256: str = ""
    message: str = ""
    owner: RunOwner | None = None


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run. Constructing it does not access the file system."""

    path: Path

    def file(self, name: str) -> Path:
        """Return the path of a file by its name in the module's docstring."""
        assert name in _ENTRIES, name
        return self.path / name

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    def status(self) -> RunStatus:
        """Return the status: ``crashed`` if the owner is dead, ``pending`` if there is no ``status.json``.

        Raise ``TestbedError`` if the file is damaged.
        """
        path = self.file("status.json")
        if not os.path.lexists(path):
            return RunStatus("pending")
        try:
            status = msgspec.convert(read_json(path), RunStatus)
        except msgspec.ValidationError as error:
            raise damaged(path, str(error)) from error
        if status.state in ("pending", "running") and not (status.owner and self._has_owner(status.owner)):
            return replace(status, state="crashed")
        return status

    def _has_owner(self, owner: RunOwner) -> bool:
        return atomic.changed_lately(self.path) if owner.elsewhere() else owner.alive()

    def set_status(self, state: str, plan_sha256: str, message: str = "") -> None:
        """Record ``state``. Unless the run is finished, the calling process is recorded as its owner."""
        assert state in ("pending", "running", *FINISHED), state
        current = None if state in FINISHED else msgspec.to_builtins(RunOwner.current())
        fields = {"state": state, "plan_sha256": plan_sha256, "message": message, "owner": current}
        try:
            atomic.write_json(self.file("status.json"), fields)
        except OSError as error:
            if error.errno not in FULL or state not in FINISHED:
                raise
            self._write_into_reserve(fields)
        if state in FINISHED:
            (self.path / _RESERVE).unlink(missing_ok=True)
            owner.give_all(self.path)

    def reserve(self) -> None:
        """Write a file that reserves space, so that a final status can be written even if the disk is full then."""
        with atomic.replacing(self.path / _RESERVE) as temporary:
            temporary.write_bytes(b" " * _RESERVE_BYTES)

    def _write_into_reserve(self, fields: dict[str, Any]) -> None:
        """Write the status into the reserved file, and rename the file."""
        sizes = accumulate(len(json.dumps(character)) - 2 for character in fields["message"])  # without the quotes
        fields["message"] = fields["message"][: sum(size <= _LONGEST_MESSAGE_BYTES for size in sizes)]
        with open(self.path / _RESERVE, "r+b") as file:
            file.write(json.dumps(fields, indent=2).encode())
            file.truncate()
            os.fsync(file.fileno())
        os.replace(self.path / _RESERVE, self.file("status.json"))  # noqa: PTH105 - as in ``atomic``


def read_json(path: Path, form: type[Any] = dict) -> dict[str, Any]:
    """Read a JSON object of a run directory. Raise ``TestbedError`` if it is damaged or lacks fields of ``form``."""
    try:
        content = json.loads(read_regular(path, _LARGEST_BYTES))
        if not isinstance(content, dict):
            raise damaged(path, "not a JSON object")
        msgspec.convert(content, form)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    return content


def damaged(path: Path, problem: str) -> TestbedError:
    """Return the error for a file of a run directory that cannot be read."""
    return TestbedError(f"{path}: damaged ({problem}); restore it, or run the scenario again")


class AlreadyDone(Exception):
    """The directory has a finished run of the same Plan."""


def new_path(name: str, now: datetime, token: str, root: Path = Path("runs")) -> Path:
    """Return e.g. ``runs/2025-03-01-140502-quickstart-9f3a``: sorts by time; ``token`` separates simultaneous runs."""
    return root / f"{now:%Y-%m-%d-%H%M%S}-{name}-{token}"


def claim(path: Path, plan_sha256: str, again: bool = False) -> RunDirectory:
    """Make ``path`` a new, pending run directory that the calling process owns.

    The files of a crashed, failed or interrupted run are removed, and with ``again`` also those of a finished run.
    Raise ``AlreadyDone`` if the directory has a finished run of this Plan. Raise ``ScenarioError`` if it has a live
    run, a finished run of another Plan, or other files.
    """
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner.give(missing)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot make the run directory ({error.strerror}); give another --out") from error
    run = RunDirectory(path)
    with _locked(path):
        _refuse_if_taken(run, plan_sha256, again)
        run.reserve()
        run.set_status("pending", plan_sha256)
        _clear(run)  # after the status: if this process is killed here, the directory still counts as a run's
        run.events.mkdir()
    return run


def open_run(path: Path) -> RunDirectory:
    """Return an existing run directory. Raise ``ScenarioError`` if ``path`` is not one."""
    if (path / "jobs.json").is_file():
        raise ScenarioError(f"{path}: has several jobs; name the run of one of them, {path / 'jobs'}/NAME")
    if not path.exists():
        raise ScenarioError(f"{path}: there is no such folder; name that of a run or a sweep, such as runs/NAME")
    if not is_run(path):
        raise ScenarioError(f"{path}: not a run directory (it has no plan.json and no status.json); see `testbed run`")
    return RunDirectory(path)


def is_run(path: Path) -> bool:
    return (path / "status.json").is_file() or (path / "plan.json").is_file()


def close_crashed(run: RunDirectory) -> str | None:
    """Set the final status of a crashed run and return it; return ``None`` if the run has not crashed.

    The final status is that of ``result.json`` if the file was written, else ``failed``.
    """
    with _locked(run.path):
        status = run.status()
        if status.state != "crashed":
            return None
        state = _state_of_result(run) or "failed"
        message = "its process ended unexpectedly" if state == "failed" else status.message
        run.set_status(state, status.plan_sha256, message)
        return state


def remove_leftovers(run: RunDirectory) -> list[Path]:
    """If a run has ended, remove files that it needed only while running. Return the paths of removed files.

    Temporary files of dead writers are removed in any case.
    """
    with _locked(run.path):
        ended = run.status().state in FINISHED
        left = [path for name in _OF_KERNEL if ended and os.path.lexists(path := run.path / name)]
        for path in left:
            path.unlink()
    return [*left, *atomic.sweep(run.path)]


def end_unforeseen(run: RunDirectory, status: str, message: str) -> None:
    """Set the final status of a run that ends before all its files are written, unless it has a final status.

    If ``result.json`` exists, its status is final. Otherwise it is ``status``, and the fidelity report is removed.
    """
    if run.status().state in FINISHED:
        return
    state = _state_of_result(run)
    if state is None:
        run.file("fidelity.json").unlink(missing_ok=True)
    run.set_status(state or status, run.status().plan_sha256, message)


def _state_of_result(run: RunDirectory) -> str | None:
    try:
        status = read_json(run.file("result.json")).get("status")
    except TestbedError:
        return None
    return status if status in FINISHED else None


def _refuse_if_taken(run: RunDirectory, plan_sha256: str, again: bool) -> None:
    held = sorted(
        entry.name for entry in run.path.iterdir() if not atomic.is_temporary(entry.name) and entry.name != _RESERVE
    )
    if held and not is_run(run.path):
        raise ScenarioError(
            f"{run.path}: is not empty and not a run directory (it holds {held[0]!r}); give another --out"
        )
    status = run.status()
    if status.state in ("pending", "running") and status.owner:
        where = ""
        wait = ""
        if status.owner.elsewhere():
            where = f" on {status.owner.host}, another machine or container"
            wait = ", or wait until nothing there has changed for an hour, if that run has ended"
        raise ScenarioError(
            f"{run.path}: is in use by the run of process {status.owner.pid}{where}; give another --out{wait}"
        )
    if status.state in COMPLETED and not again:
        if status.plan_sha256 == plan_sha256:
            raise AlreadyDone(str(run.path))
        raise ScenarioError(
            f"{run.path}: holds the finished run of another plan; give another --out, or --again to replace it"
        )


def _clear(run: RunDirectory) -> None:
    """Remove the files that runs write, except for the status. Other files stay."""
    for entry in (run.path / name for name in (*_ENTRIES, *_OF_KERNEL) if name != "status.json"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    atomic.sweep(run.path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the directory during the block. The lock also ends with the process."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
