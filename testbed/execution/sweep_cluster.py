"""The points of a sweep on the machines of a cluster: what each needs, what runs, and what is tried again.

The run directory of a point is claimed here and filled when its results arrive; its status is written last. A command
that is killed therefore leaves directories that the next one recognises as crashed and runs again.
"""

from __future__ import annotations

import json
import math
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed.cluster.connection import ClusterMachine, import_ray, machines
from testbed.cluster.machines import SLOT
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution.code_version import code_version
from testbed.execution.devices import least_gpus
from testbed.execution.sweep_files import SentFile, named_files, pack, unpack
from testbed.execution.sweep_machine import MachineUnfit, PointBroken, PointEnded, PointTask, packages
from testbed.execution.sweep_points import SweepPoint
from testbed.execution.sweep_pool import OnState, Warn, open_points
from testbed.execution.sweep_run import Followers
from testbed.execution.sweep_worker import PointLost, PointStarted, run_task
from testbed.plan.model import Plan, to_json
from testbed.results import atomic
from testbed.results.manifest import git_state
from testbed.results.rundir import AlreadyDone, RunDirectory, claim, is_run
from testbed.results.summary import sha256_of

ATTEMPTS = 4
"""How often a point is tried whose process or machine dies."""
_POLL_S = 0.5
_LOOK_S = 0.5
_ELSEWHERE_POLL_S = 2.0
_MEMORY_RESERVE = 1.2


@dataclass(frozen=True, slots=True)
class PointNeeds:
    """What a point takes of a machine while it runs."""

    cores: int = 1
    gpus: int = 0
    memory_bytes: int = 0
    slot: bool = False

    def fits(self, machine: ClusterMachine) -> bool:
        """Return whether the machine has this much when nothing runs on it."""
        return (
            machine.cores >= self.cores and machine.gpus >= self.gpus and machine.memory_bytes >= self.memory_bytes
            and (not self.slot or machine.slots.get(SLOT, 0) >= 1)
        )  # fmt: skip

    def times(self, machine: ClusterMachine) -> int:
        """Return how many such points run on the machine at once."""
        if not self.fits(machine):
            return 0
        return 1 if self.slot else int(machine.cores // self.cores)

    def __str__(self) -> str:
        parts = [f"{self.cores} core{'s' * (self.cores > 1)}"]
        parts += [f"{self.gpus} GPU{'s' * (self.gpus > 1)}"] if self.gpus else []
        parts += [f"{self.memory_bytes / 1e9:.1f} GB of memory"] if self.memory_bytes else []
        parts += [f"a slot '{SLOT}'"] if self.slot else []
        return ", ".join(parts)


def needs_of(plan: Plan, machines: Sequence[ClusterMachine], peak_bytes: int = 0) -> PointNeeds:
    """Return what a run takes. ``peak_bytes``: the most memory that a run of this sweep has taken so far.

    A simulation and an exact run take a core. Others pace their steps: each has a machine alone.
    """
    if plan.back_end == "exact":
        assert plan.exact is not None
        return PointNeeds(memory_bytes=plan.exact.memory_bytes)
    least = least_gpus(plan)
    if plan.back_end == "simulate":
        largest = max((machine.memory_bytes for machine in machines), default=0.0)
        return PointNeeds(gpus=least, memory_bytes=int(min(peak_bytes * _MEMORY_RESERVE, largest)))
    able = [each for each in machines if each.slots.get(SLOT) and each.cores >= 1 and each.gpus >= least]
    cores = min((int(machine.cores) for machine in able), default=1)
    gpus = min((int(machine.gpus) for machine in able), default=least)
    return PointNeeds(cores=cores, gpus=gpus if least else 0, slot=True)


PointReport = PointStarted | PointEnded | PointLost | PointBroken | MachineUnfit


class RayTasks:
    """The tasks of one sweep on the cluster that this process has joined."""

    def __init__(self) -> None:
        self._ray = import_ray()
        self._remote = self._ray.remote(run_task)
        self._contents: dict[str, Any] = {}
        self._streams: dict[Any, str] = {}
        self._machines: list[ClusterMachine] = []
        self._look_s = -math.inf

    def machines(self) -> list[ClusterMachine]:
        """Return the machines of the cluster, as of ``_LOOK_S`` ago at most: to ask takes longer than most reports."""
        if time.monotonic() - self._look_s >= _LOOK_S:
            self._look_s, self._machines = time.monotonic(), machines()
        return self._machines

    def content(self, sha256: str, content: bytes) -> None:
        """Keep the packed content of a file for the tasks that name it."""
        if sha256 not in self._contents:
            self._contents[sha256] = self._ray.put(content)

    def start(self, task: PointTask, needs: PointNeeds, without: Sequence[str]) -> None:
        """Run a task as soon as a machine has what it needs, on none of those with the ids ``without``.

        What is tried again is decided by the sweep, and not by Ray.
        """
        chosen = {"label_selector": {"ray.io/node-id": f"!in({','.join(without)})"}} if without else {}
        remote = self._remote.options(
            name=f"testbed-{task.id}", num_cpus=needs.cores, num_gpus=needs.gpus, memory=needs.memory_bytes or None,
            resources={SLOT: 1} if needs.slot else {}, num_returns="streaming", max_retries=0, **chosen,
        )  # fmt: skip
        files = {file.sha256: self._contents[file.sha256] for file in task.files.values()}
        self._streams[remote.remote(pickle.dumps(task), files)] = task.id

    def reports(self, limit_s: float) -> list[tuple[str, PointReport]]:
        """Return what has happened to tasks, by their ids; wait for it up to ``limit_s``. A result ends its task."""
        streams = list(self._streams)
        ready, _ = self._ray.wait(streams, num_returns=1, timeout=limit_s)
        if ready:
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        found = []
        for stream in ready:
            report = self._read(stream)
            found.append((self._streams[stream], report))
            if not isinstance(report, PointStarted):
                del self._streams[stream]
        return found

    def cancel(self) -> None:
        """End all tasks."""
        for stream in self._streams:
            self._ray.cancel(stream, force=True)
        self._streams.clear()

    def _read(self, stream: Any) -> PointReport:
        errors = self._ray.exceptions
        try:
            received = self._ray.get(next(stream))
            report: PointReport = pickle.loads(received) if isinstance(received, bytes) else received  # noqa: S301 - ours
        except StopIteration:
            return PointLost("its machine ended it without a result")
        except errors.RayTaskError as error:  # raised by our own code there
            return PointBroken(str(error))
        except errors.RuntimeEnvSetupError as error:
            return PointBroken(f"a machine could not set the code up: {error}")
        except errors.RayError as error:
            return PointLost(f"lost with its process or machine ({type(error).__name__})")
        return report


@dataclass(slots=True)
class ClusterPool:
    """Runs points on the machines of ``tasks``. Fields as of ``Pool``."""

    tasks: RayTasks
    directory: Callable[[SweepPoint], Path]
    scenario: bytes
    on_state: OnState
    warn: Warn
    retry_failed: bool = False
    followers: Followers = tuple
    _running: dict[str, SweepPoint] = field(default_factory=dict)
    _on: dict[str, ClusterMachine] = field(default_factory=dict)
    _claimed: set[str] = field(default_factory=set)
    _attempts: dict[str, int] = field(default_factory=dict)
    _unfit: dict[str, str] = field(default_factory=dict)  # machines that are left out, with the cause
    _peak_bytes: int = 0
    _packages: Mapping[str, str | None] = field(default_factory=packages)
    # of the code that was sent, by back end: the files may be edited while a sweep runs
    _version: Callable[[str], str] = field(default_factory=lambda: cache(code_version))
    _machines: list[ClusterMachine] = field(default_factory=list)

    def run(self, points: Iterable[SweepPoint], jobs: int | None = None) -> None:
        """Run what is not done; return when every point has ended, here or in another process.

        jobs  points at once; by default as many as the machines carry, and as many again that wait for one

        Raise ``CapabilityError`` if no machine of the cluster can run a point.
        """
        waiting = deque(self._open(points))
        elsewhere: list[SweepPoint] = []
        self._look()
        for point in waiting:
            self._require_machine(point)
        try:
            while waiting or self._running or elsewhere:
                while waiting and len(self._running) < (jobs or self._room(waiting[0])):
                    point = waiting.popleft()
                    if not self._start(point):
                        elsewhere.append(point)
                if self._running:
                    waiting.extend(self._take(self.tasks.reports(_POLL_S)))
                    self._look()
                elif elsewhere:
                    time.sleep(_ELSEWHERE_POLL_S)
                    waiting.extend(self._open(elsewhere))
                    elsewhere.clear()
        finally:
            self._end()

    def _open(self, points: Iterable[SweepPoint]) -> list[SweepPoint]:
        return open_points(points, self.directory, self.on_state, self.warn, self.retry_failed)

    def _look(self) -> None:
        """Update the list of machines, and warn of those that have joined or left."""
        now = self.tasks.machines()
        before, after = ({machine.id: machine for machine in each} for each in (self._machines, now))
        for machine in before.keys() - after.keys():
            self.warn(f"machine {before[machine].address} has left the cluster")
        if before:
            for machine in after.keys() - before.keys():
                self.warn(f"machine {after[machine].address} has joined the cluster")
        self._machines = now

    def _fit(self) -> list[ClusterMachine]:
        return [machine for machine in self._machines if machine.id not in self._unfit]

    def _require_machine(self, point: SweepPoint) -> None:
        needs = needs_of(point.plan, self._machines)
        if not any(needs.fits(machine) for machine in self._machines):
            start = "ray start --address=…" + (f" --resources='{{\"{SLOT}\": 1}}'" if needs.slot else "")
            raise CapabilityError(
                f"--cluster: no machine of the {len(self._machines)} in the cluster has {needs}, which a run on "
                f"'{point.plan.back_end}' takes; add one by `{start}`"
            )

    def _room(self, point: SweepPoint) -> int:
        """Return how many points may be with Ray: those that run, and some that wait, so that no machine idles."""
        needs = needs_of(point.plan, self._fit(), self._peak_bytes)
        return 2 * sum(needs.times(machine) for machine in self._fit()) + 1

    def _start(self, point: SweepPoint) -> bool:
        """Claim the run directory, unless it is ours, and start the point. Return False if another process has it."""
        if point.id not in self._claimed:
            try:
                claim(self.directory(point), _sha256(point.plan)).set_status("running", _sha256(point.plan))
            except AlreadyDone:
                self.on_state(point, "done")
                return True
            except ScenarioError as error:
                if is_run(self.directory(point)):
                    return False
                self.warn(str(error))
                self.on_state(point, "failed")
                return True
            self._claimed.add(point.id)
        self._running[point.id] = point
        needs = needs_of(point.plan, self._fit(), self._peak_bytes)
        self.tasks.start(self._task(point), needs, sorted(self._unfit))
        return True

    def _task(self, point: SweepPoint) -> PointTask:
        files: dict[str, SentFile] = {}
        for each in named_files(point.plan):
            files[each.text], content = pack(each)
            self.tasks.content(files[each.text].sha256, content)
        return PointTask(
            point.id, str(self.directory(point)), to_json(point.plan), self.scenario, point.resolved,
            self._version(point.plan.back_end), self._packages, tuple(sys.argv), git_state(), self.followers, files,
        )  # fmt: skip

    def _take(self, reports: Iterable[tuple[str, PointReport]]) -> list[SweepPoint]:
        """Record what has happened; return the points to be started again."""
        again = []
        for key, each in reports:
            point = self._running.get(key)
            if point is None:
                continue
            if isinstance(each, PointStarted):
                self._on[key] = each.machine
                self.on_state(point, "running")
                continue
            del self._running[key]
            machine = self._on.pop(key, None)
            if isinstance(each, PointEnded):
                self._finish(point, each)
            elif isinstance(each, MachineUnfit):
                self._leave_out(machine, each.cause)
                again.append(point)
            elif isinstance(each, PointLost) and self._may_try_again(point, each.cause, machine):
                again.append(point)
            elif isinstance(each, PointBroken):
                self._fail(point, each.cause)
        return again

    def _finish(self, point: SweepPoint, ended: PointEnded) -> None:
        run = RunDirectory(self.directory(point))
        unpack(ended.content, run.path)
        for path in run.path.rglob("*"):
            if path.is_file():
                atomic.sync(path)
        run.set_status(ended.status, ended.plan_sha256, ended.message)
        if point.plan.back_end == "simulate":
            self._peak_bytes = max(self._peak_bytes, ended.peak_bytes)
        self.on_state(point, ended.status)

    def _leave_out(self, machine: ClusterMachine | None, cause: str) -> None:
        assert machine is not None, "a machine is named before it refuses"
        if machine.id not in self._unfit:
            self._unfit[machine.id] = cause
            self.warn(f"machine {machine.address} gets no points: it {cause}")
        if not any(each.cores for each in self._fit()):
            raise CapabilityError(f"--cluster: no machine can run the points; {machine.address} {cause}")

    def _may_try_again(self, point: SweepPoint, cause: str, machine: ClusterMachine | None) -> bool:
        tried = self._attempts[point.id] = self._attempts.get(point.id, 0) + 1
        where = f" on {machine.address}" if machine else ""
        if tried < ATTEMPTS:
            self.warn(f"{point.id}{where}: {cause}; it is run again ({tried + 1} of {ATTEMPTS} attempts)")
            return True
        self._fail(point, f"given up after {ATTEMPTS} attempts; the last{where}: {cause}")
        return False

    def _fail(self, point: SweepPoint, cause: str) -> None:
        RunDirectory(self.directory(point)).set_status("failed", _sha256(point.plan), cause)
        self.on_state(point, "failed")

    def _end(self) -> None:
        """After an interruption: end what runs, and leave its directories to the next command."""
        if self._running:
            self.tasks.cancel()
        for point in self._running.values():
            RunDirectory(self.directory(point)).set_status("interrupted", _sha256(point.plan))
        self._running.clear()


def _sha256(plan: Plan) -> str:
    return sha256_of(json.loads(to_json(plan)))
