"""Runs the points of a sweep on the machines of a Ray cluster.

This process claims the run directory of a point, and fills it when the results arrive; it writes the status last. If a
command is killed, the next one therefore recognises the unfinished directories as crashed and runs their points again.
Ray chooses the machines, sends the code and the user's files, and runs a point again if its process or machine dies.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.cluster.connection import ClusterMachine, connect, import_ray, machines
from testbed.cluster.machines import SLOT
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution.code_version import packages
from testbed.execution.devices import least_gpus
from testbed.execution.sweep_files import named_files, stage
from testbed.execution.sweep_machine import PointResult, PointTask, run_task, unpack
from testbed.execution.sweep_points import SweepPoint
from testbed.execution.sweep_pool import Pool
from testbed.plan.model import Plan, to_json
from testbed.results import atomic
from testbed.results.manifest import git_state
from testbed.results.rundir import AlreadyDone, RunDirectory, claim, is_run
from testbed.results.summary import sha256_of

ATTEMPTS = 4
"""How often a point is tried if its process or machine dies."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class PointNeeds:
    """The resources of a machine that a point takes while it runs."""

    cores: int = 1
    gpus: int = 0
    memory_bytes: int = 0
    slot: bool = False

    def times(self, machine: ClusterMachine) -> int:
        """Return how many such points can run on the machine at once if nothing else runs there."""
        if machine.gpus < self.gpus or machine.memory_bytes < self.memory_bytes:
            return 0
        if self.slot:
            return int(machine.cores >= self.cores and machine.slots.get(SLOT, 0) >= 1)
        return int(machine.cores // self.cores)

    def __str__(self) -> str:
        parts = [f"{self.cores} core{'s' * (self.cores > 1)}"]
        parts += [f"{self.gpus} GPU{'s' * (self.gpus > 1)}"] if self.gpus else []
        parts += [f"{self.memory_bytes / 1e9:.1f} GB of memory"] if self.memory_bytes else []
        parts += [f"a slot '{SLOT}'"] if self.slot else []
        return ", ".join(parts)


def needs_of(plan: Plan, there: Sequence[ClusterMachine]) -> PointNeeds:
    """Return the needs of a run: a core in virtual time; a whole machine in real time, where runs pace their steps."""
    if plan.is_exact:
        assert plan.exact is not None
        return PointNeeds(memory_bytes=plan.exact.memory_bytes)
    least = least_gpus(plan)
    if not plan.facilities.has_processes:
        return PointNeeds(gpus=least)
    able = [each for each in there if each.slots.get(SLOT) and each.cores >= 1 and each.gpus >= least]
    cores = min((int(machine.cores) for machine in able), default=1)
    gpus = min((int(machine.gpus) for machine in able), default=least)
    return PointNeeds(cores=cores, gpus=gpus if least else 0, slot=True)


@contextmanager
def joined(address: str, points: Iterable[SweepPoint]) -> Iterator[dict[str, str]]:
    """Join the cluster with the files that the points name; yield their places for tasks, by their text in the Plan."""
    files = {each.text: each for point in points for each in named_files(point.plan)}
    with TemporaryDirectory(prefix="testbed-files-") as folder:
        places = stage(files.values(), Path(folder))
        connect(address, Path(folder) if places else None)
    try:
        yield places
    finally:
        import_ray().shutdown()  # another sweep of this process may have other files


@dataclass(slots=True)
class ClusterPool(Pool):
    """Runs points on the machines of the cluster. ``files``: as ``joined`` yields.

    By default, Ray gets about twice as many points as the machines can run at once, so that the next ones wait there.
    Raises ``CapabilityError`` if no machine of the cluster can run a point, or a machine has other packages.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    _machines: list[ClusterMachine] = field(default_factory=list)
    _looked_s: float = -math.inf
    _packages: Mapping[str, str | None] = field(default_factory=packages)

    def _prepare(self, points: Sequence[SweepPoint]) -> None:
        self._look()
        for point in points:
            self._require_machine(point)

    def _look(self) -> None:
        """Update the list of machines, and warn of machines that have joined or left."""
        if time.monotonic() - self._looked_s < _POLL_S:
            return
        self._looked_s = time.monotonic()
        known, self._machines = self._machines, machines()
        before = {machine.id: machine.address for machine in known}
        after = {machine.id: machine.address for machine in self._machines}
        for id_ in before.keys() - after.keys():
            self.warn(f"machine {before[id_]} has left the cluster; its points are run again elsewhere")
        for id_ in after.keys() - before.keys() if before else ():
            self.warn(f"machine {after[id_]} has joined the cluster")

    def _require_machine(self, point: SweepPoint) -> None:
        needs = needs_of(point.plan, self._machines)
        if not any(needs.times(machine) for machine in self._machines):
            start = "ray start --address=…" + (f" --resources='{{\"{SLOT}\": 1}}'" if needs.slot else "")
            raise CapabilityError(
                f"--cluster: no machine of the {len(self._machines)} in the cluster has {needs}, which "
                f"{point.plan.title} takes; add one by `{start}`"
            )

    def _room(self, point: SweepPoint) -> int:
        if self.jobs:
            return self.jobs
        needs = needs_of(point.plan, self._machines)
        return 2 * sum(needs.times(machine) for machine in self._machines) + 1

    def _start(self, point: SweepPoint) -> bool:
        """Claim the run directory and start the point."""
        path = self.directory(point)
        sha256 = _sha256(point.plan)
        try:
            claim(path, sha256).set_status("running", sha256)
        except AlreadyDone:
            self.on_state(point, "done")
            return True
        except ScenarioError as error:
            if is_run(path):
                return False
            self.warn(str(error))
            self.on_state(point, "failed")
            return True
        needs = needs_of(point.plan, self._machines)
        remote = (
            import_ray()
            .remote(run_task)
            .options(
                name=f"testbed-{point.id}",
                num_cpus=needs.cores,
                num_gpus=needs.gpus,
                memory=needs.memory_bytes or None,
                resources={SLOT: 1} if needs.slot else {},
                max_retries=ATTEMPTS - 1,
            )
        )
        self._running[remote.remote(self._task(point))] = point
        self.on_state(point, "running")
        return True

    def _task(self, point: SweepPoint) -> PointTask:
        texts = [each.text for each in named_files(point.plan)]
        files = {text: self.files[text] for text in texts if text in self.files}
        return PointTask(
            point.id,
            str(self.directory(point)),
            to_json(point.plan),
            self.scenario,
            point.resolved,
            self._packages,
            tuple(sys.argv),
            git_state(),
            self.followers,
            files,
        )

    def _take_ended(self) -> list[SweepPoint]:
        """Wait briefly for a result, and write it into its run directory."""
        self._look()
        ray = import_ray()
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=_POLL_S)
        for reference in ready:
            try:
                result: PointResult = ray.get(reference)
            except CapabilityError as error:
                raise CapabilityError(f"--cluster: {getattr(error, 'cause', error)}") from error
            except ray.exceptions.RayTaskError as error:  # of our own code there
                result = PointResult("failed", str(error), "", b"")
            except ray.exceptions.RayError as error:
                cause = f"lost with its process or machine in {ATTEMPTS} attempts ({type(error).__name__})"
                result = PointResult("failed", cause, "", b"")
            self._finish(self._running.pop(reference), result)
        return []

    def _finish(self, point: SweepPoint, result: PointResult) -> None:
        run = RunDirectory(self.directory(point))
        if result.content:
            unpack(result.content, run.path)
        for path in run.path.rglob("*"):
            if path.is_file():
                atomic.sync(path)
        run.set_status(result.status, result.plan_sha256 or _sha256(point.plan), result.message)
        self.on_state(point, result.status)

    def _end(self) -> None:
        """End the points that run, after an interruption, and mark them so that the next command runs them again."""
        for reference, point in self._running.items():
            import_ray().cancel(reference, force=True)
            RunDirectory(self.directory(point)).set_status("interrupted", _sha256(point.plan))
        self._running.clear()


def _sha256(plan: Plan) -> str:
    return sha256_of(json.loads(to_json(plan)))
