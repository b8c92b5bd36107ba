"""The points of a sweep on machines, without Ray: what a point needs, what is tried again, and what comes home."""

from __future__ import annotations

import io
import os
import pickle
import select
import socket
import subprocess
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster.connection import ClusterMachine
from testbed.execution import sweep as sweeps
from testbed.execution import sweep_machine, sweep_points, sweep_pool
from testbed.execution.sweep_cluster import ATTEMPTS, ClusterPool, PointNeeds, PointReport, needs_of
from testbed.execution.sweep_machine import PointEnded, PointResult, PointTask
from testbed.execution.sweep_points import SweepPoint, points_of
from testbed.execution.sweep_worker import Fetch, MachineProcess, PointLost, PointStarted
from testbed.plan.model import Plan
from testbed.results.rundir import RunDirectory, claim
from testbed.scenario.sweep import SweepSettings, from_options
from tests.cluster.sweeping import SMALL
from tests.for_each import for_each

ONE = ClusterMachine("a", "10.0.0.1", cores=1, memory_bytes=8e9)
BIG = ClusterMachine("b", "10.0.0.2", cores=16, gpus=2, memory_bytes=64e9, slots={"emulate": 1})


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def points(scenario: Path) -> list[SweepPoint]:
    return points_of(scenario, from_options(["codec=none,fp16"], [], 2), None)


# ---- what a point takes ---------------------------------------------------------------------------------------------


def on(plan: Plan, back_end: str, **changes: Any) -> Plan:
    return replace(plan, back_end=back_end, **changes)


def test_a_simulation_takes_a_core_and_what_the_largest_before_it_took(points: list[SweepPoint]) -> None:
    plan = points[0].plan
    assert needs_of(plan, [ONE, BIG]) == PointNeeds(cores=1)
    assert needs_of(plan, [ONE, BIG], peak_bytes=10**9).memory_bytes == 1_200_000_000
    assert needs_of(plan, [ONE], peak_bytes=8 * 10**9).memory_bytes == 8e9, "no machine could ever run it"


@for_each("back_end", ["emulate", "local"])
def test_a_paced_run_has_a_machine_with_a_slot_alone(points: list[SweepPoint], back_end: str) -> None:
    needs = needs_of(on(points[0].plan, back_end), [ONE, BIG, replace(BIG, id="c", cores=8)])
    assert needs == PointNeeds(cores=8, slot=True)
    assert [needs.times(machine) for machine in (ONE, BIG)] == [0, 1]
    assert str(needs) == "8 cores, a slot 'emulate'"


# ---- what is done with what happens ---------------------------------------------------------------------------------


def packed(**files: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()


ENDED = PointEnded("done", "", "0" * 64, packed(log="made elsewhere"), 10**9)


class Script:
    """Tasks that end as written: ``ends(id, attempt)`` returns the reports of an attempt."""

    def __init__(
        self, ends: Callable[[str, int], Sequence[PointReport]], machines: Sequence[ClusterMachine] = (BIG,)
    ) -> None:
        self._ends, self.at = ends, list(machines)
        self.started: list[tuple[str, PointNeeds, Sequence[str]]] = []
        self._reports: deque[tuple[str, PointReport]] = deque()
        self.cancelled, self.most, self._open = False, 0, set[str]()

    def machines(self) -> list[ClusterMachine]:
        return self.at

    def content(self, sha256: str, content: bytes) -> None:
        raise AssertionError("the scenario names no file")

    def start(self, task: PointTask, needs: PointNeeds, without: Sequence[str]) -> None:
        attempt = sum(key == task.id for key, _, _ in self.started)
        self.started.append((task.id, needs, without))
        self._open.add(task.id)
        self.most = max(self.most, len(self._open))
        self._reports += [(task.id, each) for each in self._ends(task.id, attempt)]

    def reports(self, limit_s: float) -> list[tuple[str, PointReport]]:
        assert self._reports, "the pool waits for what will never come"
        key, each = self._reports.popleft()
        if not isinstance(each, PointStarted):
            self._open.discard(key)
        return [(key, each)]

    def cancel(self) -> None:
        self.cancelled = True


class Watch:
    """A pool with its tasks, and what it has told."""

    def __init__(self, out: Path, tasks: Any, retry_failed: bool = False) -> None:
        self.states: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.out = out
        self.pool = ClusterPool(
            tasks, self.path, SMALL.encode(), lambda point, state: self.states.append((point.id, state)),
            self.warnings.append, retry_failed,
        )  # fmt: skip

    def path(self, point: SweepPoint) -> Path:
        return self.out / point.id

    def status(self, point: SweepPoint) -> str:
        return RunDirectory(self.path(point)).status().state


def test_results_come_home_and_are_not_made_again(points: list[SweepPoint], tmp_path: Path) -> None:
    tasks = Script(lambda key, attempt: [PointStarted(BIG), ENDED])
    watch = Watch(tmp_path, tasks)
    watch.pool.run(points)
    assert [watch.status(point) for point in points] == ["done"] * 4
    assert watch.path(points[0]).joinpath("log").read_text() == "made elsewhere"
    assert watch.states[:4].count((points[0].id, "running")) == 1
    again = Script(lambda key, attempt: [])
    Watch(tmp_path, again).pool.run(points)
    assert not again.started


def test_a_lost_point_is_run_again_and_given_up_at_the_limit(points: list[SweepPoint], tmp_path: Path) -> None:
    unlucky, unhappy = points[0].id, points[1].id

    def ends(key: str, attempt: int) -> list[PointReport]:
        lost = key == unlucky or (key == unhappy and attempt < ATTEMPTS - 1)
        return [PointStarted(BIG), PointLost("its machine burned") if lost else ENDED]

    watch = Watch(tmp_path, tasks := Script(ends))
    watch.pool.run(points)
    tried = [key for key, _, _ in tasks.started]
    assert (tried.count(unlucky), tried.count(unhappy), len(tried)) == (ATTEMPTS, ATTEMPTS, 2 * ATTEMPTS + 2)
    assert [watch.status(point) for point in points] == ["failed", "done", "done", "done"]
    told = RunDirectory(watch.path(points[0])).status().message
    assert told == f"given up after {ATTEMPTS} attempts; the last on 10.0.0.2: its machine burned"
    assert f"{unhappy} on 10.0.0.2: its machine burned; it is run again (2 of 4 attempts)" in watch.warnings
    Watch(tmp_path, quiet := Script(lambda key, attempt: [])).pool.run(points)
    assert not quiet.started, "a failed point is run again only on request"
    Watch(tmp_path, once := Script(lambda key, attempt: [ENDED]), retry_failed=True).pool.run(points)
    assert [key for key, _, _ in once.started] == [unlucky]


def test_an_interruption_ends_what_runs_and_loses_nothing_else(points: list[SweepPoint], tmp_path: Path) -> None:
    def interrupted(key: str, attempt: int) -> list[PointReport]:
        if key == points[1].id:
            raise KeyboardInterrupt
        return [PointStarted(BIG), ENDED]

    watch = Watch(tmp_path, tasks := Script(interrupted))
    with pytest.raises(KeyboardInterrupt):
        watch.pool.run(points)
    assert tasks.cancelled
    assert [watch.status(point) for point in points] == ["interrupted", "interrupted", "pending", "pending"]
    Watch(tmp_path, Script(lambda key, attempt: [ENDED])).pool.run(points)
    assert {watch.status(point) for point in points} == {"done"}


# ---- with processes as on machines ----------------------------------------------------------------------------------


class ForkedProcess(MachineProcess):
    """The process of a machine, forked from the tests' instead of started: it need not import."""

    def _start(self) -> None:
        ours, its = socket.socketpair()
        self._errors = os.memfd_create("errors")
        self.pid = os.fork()
        if self.pid == 0:
            for entry in Path("/proc/self/fd").iterdir():  # sockets of other machines among them
                if int(entry.name) > 2 and int(entry.name) != its.fileno():
                    with suppress(OSError):
                        os.close(int(entry.name))
            try:
                sweep_machine.main(its.fileno())
            finally:
                os._exit(0)
        its.close()
        self._connection = Connection(ours.detach())
        self._stored = set()

    def start(self, task: PointTask, fetch: Fetch = lambda _: b"", place: str = "") -> None:
        self.send(
            pickle.dumps(task), [file.sha256 for file in task.files.values()], fetch, {"cluster": {"machine": place}}
        )

    def result(self) -> PointResult:
        received = self.receive()
        if isinstance(received, PointLost):
            return received
        result: PointResult = pickle.loads(received)
        return result

    def close(self) -> None:
        super().close()
        os.waitpid(self.pid, 0)


class Processes:
    """Machines of one core each, on this one."""

    def __init__(self, count: int) -> None:
        self._all = [ClusterMachine(str(number), f"10.0.0.{number}", 1, memory_bytes=4e9) for number in range(count)]
        self.processes = {machine.id: ForkedProcess() for machine in self._all}
        self._busy: dict[str, str] = {}
        self._queue: deque[PointTask] = deque()
        self._contents: dict[str, bytes] = {}

    def machines(self) -> list[ClusterMachine]:
        return self._all

    def content(self, sha256: str, content: bytes) -> None:
        self._contents[sha256] = content

    def start(self, task: PointTask, needs: PointNeeds, without: Sequence[str]) -> None:
        self._queue.append(task)

    def reports(self, limit_s: float) -> list[tuple[str, PointReport]]:
        reports: list[tuple[str, PointReport]] = []
        for machine in self._all:
            if machine.id not in self._busy and self._queue:
                task = self._queue.popleft()
                self._busy[machine.id] = task.id
                self.processes[machine.id].start(task, self._contents.__getitem__, machine.address)
                reports.append((task.id, PointStarted(machine)))
        ready, _, _ = select.select([self.processes[name] for name in self._busy], [], [], 0 if reports else limit_s)
        for name in [name for name in self._busy if self.processes[name] in ready]:
            reports.append((self._busy.pop(name), self.processes[name].result()))
        return reports

    def cancel(self) -> None:
        raise AssertionError("nothing is interrupted")


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Two; what they leave would be in ``tmp_path / "machine"``."""
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "machine"))
    made = Processes(2)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.close()
    assert not list((tmp_path / "machine").iterdir()), "a machine is left with files"


@for_each("name", ["status.json", "result.json"])
@for_each("state", ["done", "failed"])
def test_a_point_whose_files_are_damaged_is_run_again(
    name: str, state: str, scenario: Path, points: list[SweepPoint], tmp_path: Path
) -> None:
    job, tasks = job_of(tmp_path, scenario, points), Script(lambda key, attempt: [ENDED])
    for point in points:
        claim(job.path(point), "0" * 64).set_status(state, "0" * 64)
    (job.path(points[0]) / name).write_text('{"half": ')
    watch = Watch(tmp_path / "runs", tasks)
    watch.pool.run(points)
    assert [key for key, _, _ in tasks.started] == [points[0].id]
    (warning,) = watch.warnings
    assert f"{name}: damaged" in warning and warning.endswith("; it is run again")
    assert sweeps.table(job)[0]["status"] == "done"


def job_of(out: Path, scenario: Path, points: list[SweepPoint]) -> sweeps.SweepJob:
    return sweeps.SweepJob(out, scenario, SweepSettings(), points)


def _start() -> int:
    from testbed.process_id import start_ticks

    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return ticks


# ---- what starts quickly --------------------------------------------------------------------------------------------


def test_a_sweep_leaves_other_children_to_their_parent(
    points: list[SweepPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep may run in the process of a user who also waits for other children."""
    monkeypatch.setattr(sweep_pool, "warm_up", lambda plans: None)
    monkeypatch.setattr(sweep_pool.Pool, "_child", lambda self, point, parent: 0)
    own = subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    states = list[str]()
    pool = sweep_pool.Pool(lambda point: tmp_path / point.id, b"", lambda point, state: states.append(state), print)
    pool.run(points[:2], 2)
    assert own.wait() == 3 and states == ["running", "running", "failed", "failed"]


def test_the_code_is_read_once_for_all_points(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(sweep_points, "code_version", lambda back_end: read.append(back_end) or "1")
    points_of(scenario, from_options(["codec=none,fp16"], [], 2), None)
    assert read == ["simulate"]
