"""Runs a point of a sweep on a machine of a cluster: a Ray task starts a host process, which executes the point.

The run directory is temporary, and the task returns its files as its result. Ray runs a task again if its process or
machine dies.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.cluster.connection import import_ray
from testbed.cluster.directories import temporary_directory
from testbed.errors import CapabilityError, TestbedError
from testbed.execution.code_version import packages
from testbed.execution.sweep_files import with_copies
from testbed.execution.sweep_run import Followers, PointOrigin, PointRun, execute_point, with_paths
from testbed.plan.model import from_json
from testbed.results.rundir import RunDirectory

_STATUS = "status.json"
_LOG = "host.log"


@dataclass(frozen=True, slots=True)
class PointTask:
    """A point as it is sent to a machine; fields as in ``PointRun`` and ``PointOrigin``.

    directory  the run directory on the command's machine
    packages   versions of Python and of the packages that affect results
    files      paths, in the task's working directory, of the files that the Plan names, by their text in the Plan
    """

    id: str
    directory: str
    plan: bytes
    scenario: bytes
    resolved: str
    packages: Mapping[str, str | None]
    argv: Sequence[str]
    git: Mapping[str, Any]
    followers: Followers = tuple
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointResult:
    """How the run has ended, and its directory as a tar archive, without the status: the receiver writes that last."""

    status: str
    message: str
    plan_sha256: str
    content: bytes


def run_task(task: PointTask) -> PointResult:
    """Execute a point on this machine. Raise ``CapabilityError`` if the machine has other packages."""
    address = str(import_ray().util.get_node_ip_address())
    ours = packages()
    if differing := [name for name in task.packages if ours[name] != task.packages[name]]:
        about = ", ".join(f"{name} {ours[name] or 'is missing'} instead of {task.packages[name]}" for name in differing)
        raise CapabilityError(f"machine {address} has {about}; install the same version on all machines")
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray raises the niceness of its workers: steps would be late
    with temporary_directory("testbed-sweep-") as place:
        plan = from_json(task.plan)
        copies = {text: str(Path.cwd() / inside) for text, inside in task.files.items()}
        path = place / task.id
        paths = {**{copy: text for text, copy in copies.items()}, str(path): task.directory}
        origin = PointOrigin(plan, task.argv, task.git, paths)
        about_machine = {"cluster": {"machine": address}}
        try:
            own = with_copies(plan, copies)
            point = PointRun(own, task.scenario, task.resolved, task.followers, about_machine, origin)
            execute_point(path, point, in_this_process=False)
        except TestbedError as error:
            if not RunDirectory(path).status().plan_sha256:
                return PointResult("failed", with_paths(str(error), paths), "", b"")
        status = RunDirectory(path).status()
        return PointResult(status.state, with_paths(status.message, paths), status.plan_sha256, _packed(path))


def _packed(path: Path) -> bytes:
    """Return the files below a run directory as a tar archive. ``host.log`` names links, pipes etc., left out of it."""
    found = [each for each in sorted(path.rglob("*")) if each.is_symlink() or not each.is_dir()]
    files = [each for each in found if each.is_file() and not each.is_symlink()]
    if left_out := set(found) - set(files):
        with (path / _LOG).open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.writelines(f"not sent from this machine, as it is not a file: {each}\n" for each in left_out)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for each in files:
            if each != path / _STATUS:
                archive.add(each, each.relative_to(path))
    return stream.getvalue()


def unpack(content: bytes, path: Path) -> None:
    """Write the files of a ``PointResult`` into a run directory. Replace the events of an earlier attempt."""
    shutil.rmtree(path / "events", ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(path, filter="data")
