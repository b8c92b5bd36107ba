"""Points of a sweep on a machine of a cluster: a process that has imported everything forks for each of them.

``main`` is that process. Its run directories lie in a temporary directory of its own, and their content is sent back
through the socket. When the other end of the socket closes, for whatever reason, the process ends the points that it
runs, removes its directory and ends. If it is killed, the next one on the machine removes the directory.

It is not a worker of Ray, because it forks for each point, and a process with Ray's threads must not fork.
"""

from __future__ import annotations

import io
import os
import platform
import select
import signal
import tarfile
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from testbed.cluster.directories import new_directory, remove
from testbed.errors import CapabilityError
from testbed.execution.code_version import PACKAGES, code_version
from testbed.execution.compiler import may_compile
from testbed.execution.sweep_files import SentFile, copy_of, unpack, with_copies
from testbed.execution.sweep_run import (
    UNEXPECTED,
    Followers,
    PointOrigin,
    PointRun,
    close_script,
    die_with,
    execute_point,
    fork,
    warm_up,
    with_paths,
)
from testbed.execution.sweep_worker import PointLost
from testbed.plan.model import from_json
from testbed.results import FINISHED
from testbed.results.manifest import version_of
from testbed.results.rundir import RunDirectory

_PACED = ("emulate", "local")
_STATUS, _LOG = "status.json", "host.log"
_LOG_LINES = 3


@dataclass(frozen=True, slots=True)
class PointTask:
    """A point as it is sent to a machine; fields as in ``PointRun`` and ``PointOrigin``.

    directory  where the command will write it
    code       version of the code, and ``packages`` of Python and of what else decides results
    files      what the Plan names, by that text
    """

    id: str
    directory: str
    plan: bytes
    scenario: bytes
    resolved: str
    code: str
    packages: Mapping[str, str | None]
    argv: Sequence[str]
    git: Mapping[str, Any]
    followers: Followers = tuple
    files: Mapping[str, SentFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointEnded:
    """The run has ended: its status, its directory as a tar archive, and the most memory that a process of it took."""

    status: str
    message: str
    plan_sha256: str
    content: bytes
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class PointBroken:
    """No result, and none after another attempt: an error in testbed itself."""

    cause: str


@dataclass(frozen=True, slots=True)
class MachineUnfit:
    """The machine cannot run the point; another one may."""

    cause: str


PointResult = PointEnded | PointLost | PointBroken | MachineUnfit


def packages() -> dict[str, str | None]:
    """Return the versions that must be the same on all machines."""
    return {"Python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}}


class _Machine:
    """Runs the points that come by ``connection``, in directories below ``place``."""

    def __init__(self, connection: Connection, place: Path) -> None:
        self._connection, self._place = connection, place
        self._version = cache(code_version)
        self._warm: set[tuple[str, bool]] = set()  # data sets, and whether for runs that compile
        self._unfit = ""  # why no file can be kept: those that are sent are not sent again

    def serve(self) -> None:
        """Run what comes until the other end closes."""
        while True:
            contents, capabilities, variables = self._connection.recv()
            task = self._connection.recv()
            self._keep(contents)
            result = MachineUnfit(self._unfit) if self._unfit else self._run(task, capabilities, variables)
            self._connection.send(result)

    def _keep(self, contents: Mapping[str, bytes]) -> None:
        try:
            for digest, content in contents.items():
                unpack(content, self._place / "files" / digest)
        except OSError as error:
            cause = error.strerror or str(error)
            self._unfit = f"cannot keep the files of the scenario: {cause.lower()}; make room in {self._place.parent}"

    def _run(self, task: PointTask, capabilities: Mapping[str, Any], variables: Mapping[str, str | None]) -> Any:
        try:
            point = self._point(task, capabilities)
        except CapabilityError as error:
            return MachineUnfit(str(error))
        path = self._place / task.id
        self._warm_up(point)
        pid = fork(partial(_child, path, point, os.getpid(), variables))
        try:
            code, peak_bytes = self._wait(pid)
            return self._result(path, point, code, peak_bytes)
        finally:
            remove(path)

    def _point(self, task: PointTask, capabilities: Mapping[str, Any]) -> PointRun:
        plan = from_json(task.plan)
        if self._version(plan.back_end) != task.code:
            raise CapabilityError(_difference(task.packages))
        copies = {text: copy_of(file, self._place / "files") for text, file in task.files.items()}
        paths = {copy: text for text, copy in copies.items()}
        origin = PointOrigin(plan, task.argv, task.git, {**paths, str(self._place / task.id): task.directory})
        return PointRun(with_copies(plan, copies), task.scenario, task.resolved, task.followers, capabilities, origin)

    def _warm_up(self, point: PointRun) -> None:
        wanted = repr(point.plan.training.data), may_compile(point.plan)
        if wanted not in self._warm:
            self._warm.add(wanted)
            with suppress(Exception):  # the point itself fails with it
                warm_up([point.plan])

    def _wait(self, pid: int) -> tuple[int, int]:
        """Return how the child has ended, and its memory. End with it if the other end of the socket closes."""
        child = os.pidfd_open(pid)
        try:
            ready, _, _ = select.select([child, self._connection.fileno()], [], [])
            if child not in ready:
                raise EOFError
        except BaseException:
            os.kill(pid, signal.SIGKILL)  # what it has started dies with it
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(child)
        _, status, usage = os.wait4(pid, 0)
        return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024

    def _result(self, path: Path, point: PointRun, code: int, peak_bytes: int) -> PointResult:
        run = RunDirectory(path)
        assert point.origin is not None
        if run.status().state == "crashed":
            close_script(run, point.plan, code)
        status = run.status()
        if status.state in FINISHED:
            message = with_paths(status.message, point.origin.paths)
            return PointEnded(status.state, message, status.plan_sha256, _packed(path), peak_bytes)
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", as by the kernel when memory is short" if -code == signal.SIGKILL else ""
            return PointLost(f"its process was killed by {name}{hint}")
        return PointBroken(with_paths(_last_lines(path), point.origin.paths) or f"its process ended with code {code}")


def _child(path: Path, point: PointRun, parent: int, variables: Mapping[str, str | None]) -> int:
    try:
        die_with(parent)
        for name, value in variables.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        if point.plan.back_end in _PACED:  # Ray's workers are less urgent than others: steps would be late
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, 0)
        execute_point(path, point)
    except BaseException:
        path.mkdir(exist_ok=True)
        with (path / _LOG).open("a") as log:
            traceback.print_exc(file=log)
        return UNEXPECTED
    return 0


def _difference(theirs: Mapping[str, str | None]) -> str:
    ours = packages()
    differing = [
        f"{name} {ours[name] or 'is missing'} instead of {theirs[name]}"
        for name in theirs
        if ours[name] != theirs[name]
    ]
    return f"has {', '.join(differing) or 'another version of testbed'}; install the same version on all machines"


def _packed(path: Path) -> bytes:
    """Return the run directory without its status, which the receiver writes last.

    What the receiver would refuse, such as links out of the directory, is left out, and named in ``host.log``.
    """
    stream, left_out = io.BytesIO(), list[str]()

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        try:
            tarfile.data_filter(entry, str(path))
        except tarfile.FilterError as error:
            left_out.append(f"left out on the way from this machine: {error}\n")
            return None
        return entry

    log = path / _LOG
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry in sorted(path.iterdir()):
            if entry.name not in (_STATUS, _LOG):
                archive.add(entry, entry.name, filter=plain)
        if left_out:
            with log.open("a", encoding="utf-8", errors="backslashreplace") as lines:
                lines.writelines(left_out)
        if log.is_file():
            archive.add(log, _LOG, filter=plain)
    return stream.getvalue()


def _last_lines(path: Path) -> str:
    log = path / _LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return "\n".join(lines[-_LOG_LINES:])


def main(descriptor: int) -> None:
    """Serve until the other end closes; leave nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what an interrupt ends
    place = new_directory("testbed-sweep")
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)  # what libraries write is removed, too
    try:
        with suppress(EOFError, ConnectionResetError, BrokenPipeError):
            _Machine(Connection(descriptor), place).serve()
    finally:
        remove(place)
