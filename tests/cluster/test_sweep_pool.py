"""The points of a sweep on machines, without Ray: what a point needs, what is tried again, and what comes home."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from testbed.cluster import directories
from testbed.cluster.connection import ClusterMachine
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution import sweep as sweeps
from testbed.execution import sweep_machine, sweep_points, sweep_pool, sweep_run, sweep_worker
from testbed.execution.sweep_cluster import ATTEMPTS, ClusterPool, PointNeeds, PointReport, needs_of
from testbed.execution.sweep_files import SentFile
from testbed.execution.sweep_machine import MachineUnfit, PointBroken, PointEnded, PointResult, PointTask
from testbed.execution.sweep_points import SweepPoint, points_of
from testbed.execution.sweep_worker import Fetch, MachineProcess, PointLost, PointStarted
from testbed.plan.model import ClusterPlan, ExactPlan, Plan
from testbed.results.rundir import RunDirectory, claim
from testbed.scenario.sweep import SweepSettings, from_options
from tests.cluster.sweeping import SMALL, wait_until

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


def test_an_exact_run_takes_a_core_and_the_memory_of_its_guest(points: list[SweepPoint]) -> None:
    exact = ExactPlan(memory_bytes=2 << 30, system_call_s=1e-6, cpu="none")
    assert needs_of(on(points[0].plan, "exact", exact=exact), [BIG]) == PointNeeds(cores=1, memory_bytes=2 << 30)


@pytest.mark.parametrize("back_end", ["emulate", "local"])
def test_a_paced_run_has_a_machine_with_a_slot_alone(points: list[SweepPoint], back_end: str) -> None:
    needs = needs_of(on(points[0].plan, back_end), [ONE, BIG, replace(BIG, id="c", cores=8)])
    assert needs == PointNeeds(cores=8, slot=True)
    assert [needs.times(machine) for machine in (ONE, BIG)] == [0, 1]
    assert str(needs) == "8 cores, a slot 'emulate'"


def test_devices_are_gpus(points: list[SweepPoint]) -> None:
    plan = points[0].plan
    node = plan.nodes[-1]
    cuda = replace(plan, nodes=(*plan.nodes[:-1], replace(node, device=replace(node.device, kind="cuda"))))
    assert needs_of(cuda, [BIG]).gpus == 1
    modelled = replace(cuda, training=replace(cuda.training, compute="modelled"))
    assert needs_of(modelled, [BIG]).gpus == 0, "sizes are computed nowhere"
    numbered = replace(node, device=replace(node.device, kind="cuda", index=1))
    assert needs_of(replace(plan, nodes=(*plan.nodes[:-1], numbered)), [ONE, BIG]).gpus == 2
    assert not PointNeeds(gpus=1).fits(ONE) and PointNeeds(gpus=1).fits(BIG)


def test_a_paced_run_on_gpus_has_all_of_its_machine(points: list[SweepPoint]) -> None:
    plan = on(points[0].plan, "local")
    nodes = tuple(replace(node, device=replace(node.device, kind="cuda")) for node in plan.nodes)
    small = replace(BIG, id="c", cores=8, gpus=0)
    assert needs_of(replace(plan, nodes=nodes), [BIG, small]) == PointNeeds(cores=16, gpus=2, slot=True)
    assert needs_of(plan, [BIG, small]) == PointNeeds(cores=8, slot=True)


@pytest.mark.parametrize("options", [{"backend": "nccl"}, {"inside": "nccl"}])
def test_nccl_takes_a_gpu_for_each_worker(points: list[SweepPoint], options: dict[str, str]) -> None:
    plan = points[0].plan
    paradigm = replace(plan.technique.paradigm, options=options)
    sums = replace(plan, technique=replace(plan.technique, paradigm=paradigm))
    workers = len(plan.training_workers)
    assert workers == 2 and needs_of(on(sums, "local"), []).gpus == workers
    assert needs_of(sums, [BIG]).gpus == 0, "no library sums in virtual time"


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


def test_memory_of_later_points_is_what_earlier_ones_took(points: list[SweepPoint], tmp_path: Path) -> None:
    tasks = Script(lambda key, attempt: [PointStarted(ONE), ENDED], [ONE])
    Watch(tmp_path, tasks).pool.run(points, jobs=1)
    assert [needs.memory_bytes for _, needs, _ in tasks.started] == [0, *[1_200_000_000] * 3]


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


def test_an_error_of_our_own_is_not_tried_again(points: list[SweepPoint], tmp_path: Path) -> None:
    tasks = Script(lambda key, attempt: [PointStarted(BIG), PointBroken("NameError: name 'x'")])
    watch = Watch(tmp_path, tasks)
    watch.pool.run(points[:1])
    assert len(tasks.started) == 1
    assert RunDirectory(watch.path(points[0])).status().message == "NameError: name 'x'"


def test_an_unfit_machine_is_left_out(points: list[SweepPoint], tmp_path: Path) -> None:
    def ends(key: str, attempt: int) -> list[PointReport]:
        if attempt == 0 and key == points[0].id:
            return [PointStarted(ONE), MachineUnfit("has numpy 1.0 instead of 2.0")]
        return [PointStarted(BIG), ENDED]

    watch = Watch(tmp_path, tasks := Script(ends, [ONE, BIG]))
    watch.pool.run(points, jobs=1)
    assert [without for _, _, without in tasks.started] == [[], *[["a"]] * 4]
    assert watch.warnings == ["machine 10.0.0.1 gets no points: it has numpy 1.0 instead of 2.0"]
    assert {watch.status(point) for point in points} == {"done"}
    with pytest.raises(CapabilityError, match=r"no machine can run the points; 10.0.0.1 has numpy 1.0"):
        Watch(tmp_path / "other", Script(ends, [ONE])).pool.run(points)


def test_machines_that_come_and_go_are_told(points: list[SweepPoint], tmp_path: Path) -> None:
    tasks = Script(lambda key, attempt: [PointStarted(ONE), ENDED], [ONE])

    def start(task: PointTask, *rest: Any) -> None:
        tasks.at = [BIG]
        Script.start(tasks, task, *rest)

    tasks.start = start  # type: ignore[method-assign]
    watch = Watch(tmp_path, tasks)
    watch.pool.run(points)
    assert watch.warnings == ["machine 10.0.0.1 has left the cluster", "machine 10.0.0.2 has joined the cluster"]


def test_a_point_that_no_machine_can_run_is_refused_first(points: list[SweepPoint], tmp_path: Path) -> None:
    emulated = replace(points[0], plan=on(points[0].plan, "emulate"))
    watch = Watch(tmp_path, tasks := Script(lambda key, attempt: [ENDED], [ONE]))
    with pytest.raises(
        CapabilityError, match=r"no machine .* has 1 core, a slot 'emulate'.*--resources='\{\"emulate\""
    ):
        watch.pool.run([points[1], emulated])
    assert not tasks.started and not list(tmp_path.iterdir())


def test_no_more_are_handed_out_than_the_machines_can_begin_soon(points: list[SweepPoint], tmp_path: Path) -> None:
    tasks = Script(lambda key, attempt: [PointStarted(ONE), ENDED], [ONE])
    Watch(tmp_path, tasks).pool.run(points)
    assert tasks.most == 3
    limited = Script(lambda key, attempt: [PointStarted(ONE), ENDED], [ONE])
    Watch(tmp_path / "limited", limited).pool.run(points, jobs=2)
    assert limited.most == 2


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


def test_what_another_command_runs_is_waited_for(
    points: list[SweepPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Watch(tmp_path, Script(lambda key, attempt: [ENDED]))
    watch = Watch(tmp_path, tasks := Script(lambda key, attempt: [ENDED]))
    assert other.pool._start(points[0])
    monkeypatch.setattr(
        "testbed.execution.sweep_cluster.time.sleep", lambda _: other.pool._take([(points[0].id, ENDED)])
    )
    watch.pool.run(points)
    assert points[0].id not in [key for key, _, _ in tasks.started]
    assert (points[0].id, "done") in watch.states


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


@pytest.mark.parametrize(("back_end", "cure"), [("emulate", "cluster.emulate: false"), ("cluster", "another --on")])
def test_points_that_take_several_machines_are_refused(
    back_end: str, cure: str, scenario: Path, points: list[SweepPoint], tmp_path: Path
) -> None:
    spread = [
        replace(
            points[0], plan=on(points[0].plan, back_end, cluster=ClusterPlan(address="10.0.0.1:6379", data_centers={}))
        )
    ]
    job = replace(job_of(tmp_path / "out", scenario, spread), cluster="127.0.0.1:1")
    with pytest.raises(ScenarioError, match=rf"takes several for each run.*{cure}"):
        sweeps.execute(job, lambda point, state: None)
    assert not job.directory.exists()


@pytest.mark.parametrize("name", ["status.json", "result.json"])
@pytest.mark.parametrize("state", ["done", "failed"])
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


def test_the_table_is_that_of_one_machine(
    scenario: Path, points: list[SweepPoint], processes: Processes, tmp_path: Path
) -> None:
    here, there = job_of(tmp_path / "here", scenario, points), job_of(tmp_path / "there", scenario, points)
    rows = sweeps.execute(here, lambda point, state: None)
    watch = Watch(there.directory / "runs", processes)
    watch.pool.run(points)
    assert sweeps.as_csv(sweeps.table(there)) == sweeps.as_csv(rows)
    names = {path.name for path in here.path(points[0]).iterdir()}
    assert {path.name for path in there.path(points[0]).iterdir()} == names
    abouts = [json.loads((there.path(point) / "manifest.json").read_text()) for point in points]
    assert {about["capabilities"]["cluster"]["machine"] for about in abouts} == {"10.0.0.0", "10.0.0.1"}
    ours = json.loads((here.path(points[0]) / "manifest.json").read_text())
    assert {key: abouts[0][key] for key in ("argv", "testbed", "code")} == {
        key: ours[key] for key in ("argv", "testbed", "code")
    }
    assert (there.path(points[0]) / "plan.json").read_bytes() == (here.path(points[0]) / "plan.json").read_bytes()


@pytest.mark.slow  # 4 s
def test_a_killed_point_is_run_again(points: list[SweepPoint], processes: Processes, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "runs", processes)
    killed = []

    def state(point: SweepPoint, now: str) -> None:
        if now == "running" and not killed:
            killed.append(_kill_child(processes.processes["0"].pid))

    watch.pool.on_state = state
    watch.pool.run(points)
    assert {watch.status(point) for point in points} == {"done"}
    assert [text for text in watch.warnings if "killed by SIGKILL, as by the kernel when memory is short" in text]


def _kill_child(pid: int) -> int:
    os.kill(child := _child_of(pid), 9)
    return child


def _child_of(pid: int) -> int:
    """Return the process of the point: the child that owns a run.

    Others remove directories, or are the commands by which the process finds out which code it has.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while True:
        found = {int(child) for child in children.read_text().split()}
        for status in Path(tempfile.gettempdir()).glob("testbed-sweep-*/*/status.json"):
            owner = json.loads(status.read_text())["owner"]
            if owner and owner["pid"] in found:
                return int(owner["pid"])
        time.sleep(0.001)


def test_what_a_killed_process_has_left_is_removed_even_if_no_other_point_comes(
    points: list[SweepPoint], processes: Processes, tmp_path: Path
) -> None:
    process = processes.processes["0"]
    process.start(Watch(tmp_path / "runs", processes).pool._task(points[0]))
    wait_until(lambda: list((tmp_path / "machine").glob(f"testbed-sweep-{process.pid}-*/{points[0].id}")))
    os.kill(killed := process.pid, signal.SIGKILL)
    assert isinstance(process.result(), PointLost) and process.pid != killed
    wait_until(lambda: not list((tmp_path / "machine").glob(f"testbed-sweep-{killed}-*")))


def test_the_process_ends_with_the_point_when_the_other_end_closes(
    scenario: Path, processes: Processes, tmp_path: Path
) -> None:
    (long,) = points_of(scenario, from_options(["training.rounds=20000"], [], None), None)  # half an hour
    process = processes.processes["0"]
    process.start(Watch(tmp_path / "runs", processes).pool._task(long))
    child, begin_s = _child_of(process.pid), time.monotonic()
    process.close()
    assert not Path(f"/proc/{child}").exists() and time.monotonic() - begin_s < 60
    assert not list((tmp_path / "machine").glob(f"testbed-sweep-{process.pid}-*"))
    processes.processes["0"] = ForkedProcess()  # for the fixture to close


def test_the_status_is_no_part_of_what_comes_home(tmp_path: Path) -> None:
    """A command that dies while it unpacks must not leave a run that is called done."""
    for name in ("host.log", "status.json", "tables"):
        (tmp_path / name).write_text("")
    with tarfile.open(fileobj=io.BytesIO(sweep_machine._packed(tmp_path))) as archive:
        assert archive.getnames() == ["tables", "host.log"]


def test_what_cannot_come_home_is_left_out_and_named(tmp_path: Path) -> None:
    """A script may leave anything in its run directory; the command that gets it must not fail by that."""
    there, home = tmp_path / "there", tmp_path / "home"
    (there / "logs").mkdir(parents=True)
    for name in ("host.log", "logs/run"):
        (there / name).write_text("text\n")
    (there / "logs" / "latest").symlink_to("run")
    (there / "data").symlink_to("/etc/passwd")
    (there / "above").symlink_to("../../other")
    os.mkfifo(there / "logs" / "pipe")
    sweep_machine.unpack(sweep_machine._packed(there), home)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == [
        "host.log", "logs", "logs/latest", "logs/run"
    ]  # fmt: skip
    log = (home / "host.log").read_text().splitlines()
    assert log[0] == "text" and len(log) == 4
    assert all(any(name in line for line in log[1:]) for name in ("'data'", "'above'", "'logs/pipe'"))


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    stale, living = tmp_path / "testbed-sweep-4194000-1", tmp_path / f"testbed-sweep-{os.getpid()}-{_start()}"
    for path in (stale, living, tmp_path / "testbed-sweep-mine"):
        path.mkdir()
        (path / "file").write_text("")
    for path in tmp_path.iterdir():
        directories._remove_stale(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, "testbed-sweep-mine"])


def _start() -> int:
    from testbed.process_id import start_ticks

    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return ticks


def test_a_machine_with_other_packages_says_which(
    points: list[SweepPoint], processes: Processes, tmp_path: Path
) -> None:
    task = Watch(tmp_path / "runs", processes).pool._task(points[0])
    process = processes.processes["0"]
    process.start(replace(task, code="other", packages={**task.packages, "numpy": "0.1"}))
    result = process.result()
    assert isinstance(result, MachineUnfit)
    assert result.cause.endswith("instead of 0.1; install the same version on all machines") and "numpy" in result.cause


def test_a_machine_whose_disk_is_full_is_left_out_for_all_that_comes(
    points: list[SweepPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for later points, whose files are not sent again."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(sweep_machine, "unpack", full)
    process = ForkedProcess()
    task = Watch(tmp_path / "runs", Script(lambda key, attempt: [])).pool._task(points[0])
    for _ in range(2):
        process.start(replace(task, files={"data.csv": SentFile("0" * 64, "data.csv")}))
        cause = f"cannot keep the files of the scenario: no space left on device; make room in {tmp_path}"
        assert process.result() == MachineUnfit(cause)
    process.close()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (r"import sys; sys.stderr.write('Traceback\n  File x\nMemoryError: 8 GB\n')",
         "has ended; the last line that it wrote: MemoryError: 8 GB"),
        ("import os; os.kill(os.getpid(), 9)", "was killed"),
    ],
)  # fmt: skip
def test_what_the_process_of_a_machine_has_written_last_is_told(
    monkeypatch: pytest.MonkeyPatch, code: str, how: str
) -> None:
    monkeypatch.setattr(sweep_worker, "_MAIN", code)
    process = MachineProcess()
    assert process.receive() == PointLost(f"the process that runs the machine's points {how}")
    process.close()


# ---- what starts quickly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("sweep_worker", {"numpy", "torch", "testbed.plan", "testbed.results"}),
        ("sweep_machine", {"networkx", "pydantic", "torch", "testbed.scenario"}),
    ],
)
def test_what_every_core_of_a_cluster_starts_imports_little(module: str, absent: set[str]) -> None:
    code = f"import sys, testbed.execution.{module}; print(*({absent} & sys.modules.keys()))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []


def test_only_a_run_that_may_compile_brings_the_compiler(
    points: list[SweepPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(sweep_run, "leave_out_compiler", lambda: done.append("left out"))
    monkeypatch.setattr(sweep_run, "bring_compiler", lambda: done.append("brought"))
    plain = points[0].plan
    sweep_run.warm_up([plain])
    sweep_run.warm_up([plain, replace(plain, training=replace(plain.training, compile=True))])
    assert done == ["left out", "brought"]


def test_a_sweep_leaves_torch_to_who_trains_in_its_process(points: list[SweepPoint]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        sweep_run.warm_up([points[0].plan])
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


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
