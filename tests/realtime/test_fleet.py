"""The fleet: nodes as processes that end together, and the error that names the cause."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import errno
import math
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from testbed.errors import Interrupted, RunFailed, WaitTimeout
from testbed.messages import Message, MessageKind
from testbed.plan.fault_clock import Due, FaultClock
from testbed.plan.model import FaultPlan, NodePlan
from testbed.processes.child import close_in_children
from testbed.realtime.fleet import Fleet
from testbed.realtime.hold import Hold
from testbed.realtime.node_processes import NodeProcesses, ProcessEnd
from testbed.realtime.sockets import Endpoints
from testbed.realtime.world import RealWorld
from testbed.results.events import read
from testbed.world import Work
from tests.contract.programs import idle, receiving, sending
from tests.contract.tiny import REMOTE, WORKER, tiny_plan
from tests.for_each import for_each
from tests.realtime.processes import Processes


async def wait_long(world: RealWorld) -> None:
    await world.receive("something that never comes", deadline_s=3600.0)


async def wait_dead(world: RealWorld) -> None:
    world.warn("going to sleep")
    time.sleep(60)  # a role that does not come back to its loop


def fleet(tmp_path: Path, programs: dict[str, Any], **deadlines: float) -> Fleet:
    return Fleet(tiny_plan(programs, **deadlines), Processes(tmp_path).launch(programs))


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    before, descriptors = set(children()), open_descriptors()
    yield
    assert set(children()) <= before
    assert open_descriptors() == descriptors


def test_exits_are_reported_in_their_order(tmp_path: Path) -> None:
    async def first(world: RealWorld) -> None:
        await world.send(REMOTE, Message(MessageKind.PUSH, meta={"pid": os.getpid()}))

    async def late(world: RealWorld) -> None:
        started = await world.receive("that the other has started")
        while psutil.pid_exists(started.meta["pid"]):  # until the fleet has seen its end
            await world.sleep(0.05)

    exits = fleet(tmp_path, {"a/scheduler": idle, WORKER: first, REMOTE: late}).run()
    assert exits[0].node == WORKER, "the monitor stays until all others have left"
    assert {end.node for end in exits} == {WORKER, REMOTE, "a/scheduler"}
    assert not any(end.failed for end in exits)


@for_each("victim", [WORKER, "a/scheduler"])
def test_kill_minus_9_of_a_node_ends_the_run_and_names_it(tmp_path: Path, victim: str) -> None:
    async def kill_itself(world: RealWorld) -> None:
        await world.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)

    programs: dict[str, Any] = {"a/scheduler": wait_long, WORKER: wait_long, REMOTE: wait_long}
    under_test = fleet(tmp_path, {**programs, victim: kill_itself})
    with pytest.raises(RunFailed, match=f"{victim} was killed by signal 9, SIGKILL"):
        under_test.run()
    assert len(under_test.exits) == 3


def test_an_exception_is_reported_with_node_and_traceback(tmp_path: Path) -> None:
    async def broken(world: RealWorld) -> None:
        await world.sleep(0.1)
        raise ValueError("loss is nan")

    with pytest.raises(RunFailed, match=f"^{WORKER}: ValueError: loss is nan") as caught:
        fleet(tmp_path, {REMOTE: wait_long, WORKER: broken}).run()
    assert "in broken" in caught.value.__notes__[0]
    (event,) = [event for event in Processes(tmp_path).events(WORKER) if event["kind"] == "error"]
    assert (event["message"], event["cause"]) == ("loss is nan", "ValueError")


def test_the_error_of_a_node_that_exits_slowly_is_the_cause(tmp_path: Path) -> None:
    """Its peers notice its end, and end, before it has exited itself."""

    async def slow_to_exit(world: RealWorld) -> None:
        await world.sleep(0.1)
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 1.5)  # the loop waits for it when it closes
        raise ValueError("loss is nan")

    with pytest.raises(RunFailed, match=f"^{WORKER}: ValueError: loss is nan"):
        fleet(tmp_path, {REMOTE: wait_long, WORKER: slow_to_exit}).run()


def test_an_error_counts_more_than_a_crash_at_exit(tmp_path: Path) -> None:
    def crash() -> None:
        time.sleep(0.2)  # the loop waits for it when it closes
        os.kill(os.getpid(), signal.SIGSEGV)

    async def crash_at_exit(world: RealWorld) -> None:
        await world.sleep(0.1)
        asyncio.get_running_loop().run_in_executor(
            None, lambda: time.sleep(0.2) or os.kill(os.getpid(), signal.SIGSEGV)
        )
        raise ValueError("loss is nan")

    with pytest.raises(RunFailed, match=f"^{WORKER}: ValueError: loss is nan"):
        fleet(tmp_path, {REMOTE: wait_long, WORKER: crash_at_exit}).run()


def test_a_wait_past_its_deadline_ends_with_the_wait_graph(tmp_path: Path) -> None:
    async def impatient(world: RealWorld) -> None:
        await world.receive("the value of key 3", deadline_s=1.0)

    with pytest.raises(WaitTimeout, match=f"{WORKER} waited 1 s for the value of key 3") as caught:
        fleet(tmp_path, {REMOTE: wait_long, WORKER: impatient}).run()
    assert caught.value.exit_code == 5
    (graph,) = caught.value.__notes__
    assert f"{WORKER} waits for the value of key 3 since" in graph
    assert f"{REMOTE} waits for something that never comes since" in graph


def test_a_run_without_progress_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    with pytest.raises(WaitTimeout, match="something that never comes") as caught:
        fleet(tmp_path, {REMOTE: wait_long, WORKER: wait_long}, step_deadline_s=0.5).run()
    assert len(caught.value.__notes__[0].splitlines()) == 2


def test_a_run_that_advances_is_left_alone(tmp_path: Path) -> None:
    async def steady(world: RealWorld) -> None:
        for number in range(24):
            await world.compute(Work("step", number), lambda: None)
            await world.sleep(0.15)

    fleet(tmp_path, {WORKER: steady}, step_deadline_s=3.0).run()


def test_a_node_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(world: RealWorld) -> None:
        await world.sleep(0.1)
        raise ValueError("x")

    monkeypatch.setattr("testbed.realtime.fleet._KILL_AFTER_S", 0.5)
    under_test = fleet(tmp_path, {REMOTE: wait_dead, WORKER: broken})
    with pytest.raises(RunFailed, match="ValueError"):
        under_test.run()
    assert {end.node: end.code for end in under_test.exits}[REMOTE] == -signal.SIGKILL


def test_stop_ends_all_and_keeps_their_records(tmp_path: Path) -> None:
    under_test = fleet(tmp_path, {REMOTE: wait_long, WORKER: wait_long})
    timer = threading.Timer(0.4, under_test.stop, ["the test says so"])
    timer.start()
    with pytest.raises(Interrupted, match="the test says so"):
        under_test.run()
    timer.join()
    assert {end.code for end in under_test.exits} == {130}
    assert "stopped before its end" in [event.get("message") for event in read(tmp_path, WORKER)]


def test_a_node_that_is_stopped_while_it_starts_ends_like_others(tmp_path: Path) -> None:
    """The signal comes between the fork and the child's own handlers."""
    under_test = fleet(tmp_path, {REMOTE: wait_long, WORKER: wait_long})
    under_test.stop("at once")
    with pytest.raises(Interrupted, match="at once"):
        under_test.run()
    assert {end.code for end in under_test.exits} == {130}


def test_a_node_that_cannot_be_forked_leaves_signals_and_descriptors_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BlockingIOError):
        fleet(tmp_path, {REMOTE: idle, WORKER: idle}).run()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_ctrl_c_ends_all(tmp_path: Path) -> None:
    under_test, before = fleet(tmp_path, {REMOTE: wait_long, WORKER: wait_long}), signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.4, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(Interrupted, match="Ctrl-C"):
        under_test.run()
    timer.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_counts_while_the_nodes_of_a_failed_attempt_end(tmp_path: Path) -> None:
    """Else the run would be restarted, and only a second one would end it."""

    class StoppedLate(Fleet):
        def _turn(self) -> None:
            super()._turn()
            if self._ending:
                self.stop("Ctrl-C")

    async def dies(world: RealWorld) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    programs = {REMOTE: dies, WORKER: wait_long}
    plan = tiny_plan(programs)
    plan = dataclasses.replace(plan, recovery=dataclasses.replace(plan.recovery, on_failure="restart", max_restarts=3))
    with pytest.raises(Interrupted, match="Ctrl-C"):
        StoppedLate(plan, Processes(tmp_path).launch(programs)).run()


def test_a_second_ctrl_c_does_not_wait_for_nodes_that_ignore_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.realtime.fleet._KILL_AFTER_S", 3600.0)
    under_test = fleet(tmp_path, {REMOTE: wait_dead, WORKER: wait_dead})
    timers = [threading.Timer(after_s, os.kill, [os.getpid(), signal.SIGINT]) for after_s in (0.4, 0.8)]
    for timer in timers:
        timer.start()
    with pytest.raises(Interrupted, match="Ctrl-C"):
        under_test.run()
    for timer in timers:
        timer.join()


def test_an_error_of_the_watcher_leaves_nothing_behind_but_all_events(tmp_path: Path) -> None:
    async def told(world: RealWorld) -> None:
        world.warn("recorded at once, and in the log half a second later")
        await wait_long(world)

    def crash(line: dict[str, Any]) -> None:
        if line["kind"] == "warning":
            raise KeyError("in the table")

    with pytest.raises(KeyError):
        fleet(tmp_path, {REMOTE: wait_long, WORKER: told}).run(crash)
    kinds = [event["kind"] for event in read(tmp_path, WORKER) if event["kind"] != "process"]  # of a busy machine
    assert kinds == ["warning", "error"], "what was recorded, and that it was stopped"


def test_a_stopped_node_is_found_dead(tmp_path: Path) -> None:
    async def freeze(world: RealWorld) -> None:
        await world.sleep(0.3)
        os.kill(os.getpid(), signal.SIGSTOP)

    with pytest.raises(RunFailed, match=f"{REMOTE} lost {WORKER}: no sign of life for 0.6 s"):
        fleet(tmp_path, {REMOTE: wait_long, WORKER: freeze}, dead_after_s=0.6).run()


@for_each("blocked", [WORKER, REMOTE])
def test_a_node_whose_event_loop_stands_still_lives(tmp_path: Path, blocked: str) -> None:
    """Either end of the heartbeat connection: a thread sends the heartbeats, whatever holds up the loop."""

    async def stand_still(world: RealWorld) -> None:
        await world.sleep(0.3)
        time.sleep(1.5)  # holds it up

    async def waiting(world: RealWorld) -> None:
        await world.sleep(2.2)

    programs = {name: stand_still if name == blocked else waiting for name in (REMOTE, WORKER)}
    exits = fleet(tmp_path, programs, dead_after_s=0.6).run()
    assert not any(end.failed for end in exits)


def test_enter_is_called_first_in_the_child_and_addresses_are_the_plans(tmp_path: Path) -> None:
    def enter(node: NodePlan) -> None:
        (tmp_path / f"{node.rank}.pid").write_text(str(os.getpid()))

    programs = {WORKER: sending(REMOTE, Message(MessageKind.PUSH)), REMOTE: receiving(1)}
    plan = tiny_plan(programs)
    nodes = tuple(dataclasses.replace(node, address=f"127.0.7.{node.rank + 1}", port=5600) for node in plan.nodes)
    launch = Processes(tmp_path).launch(programs, enter=enter)
    Fleet(dataclasses.replace(plan, nodes=nodes), launch).run()
    pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in (0, 1)]
    assert os.getpid() not in pids


def test_children_are_what_they_should_be(tmp_path: Path) -> None:
    def listening() -> set[int]:
        return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"}

    async def look(world: RealWorld) -> dict[str, Any]:
        return {
            "threads": torch.get_num_threads(),
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
            "nice": os.nice(0),
            "listeners": len(listening() - ours),
        }

    niceness, ours = os.nice(0), listening()
    results = Processes(tmp_path)({WORKER: look, REMOTE: look})
    assert results[WORKER]["threads"] == results[REMOTE]["threads"] == 1
    assert results[WORKER]["core"] == 0
    assert results[WORKER]["nice"] == min(19, niceness + 5)
    assert results[REMOTE]["nice"] == niceness
    assert results[WORKER]["listeners"] == 1, "a child must not keep its siblings' listeners open"


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").exists()


def status_of_fork(inside: Callable[[], int]) -> int:
    """The exit status of a forked process, which ``inside`` returns."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = inside()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_processes_of_a_scripts_processes_keep_their_files_and_handlers(tmp_path: Path) -> None:
    """Only the script's own must not have the node's: numbers of files that were closed there are used again."""

    def innermost() -> int:
        keeps = signal.getsignal(signal.SIGTERM) == signal.SIG_IGN and signal.SIGTERM in signal.pthread_sigmask(0, ())
        return sum(not is_open(each) for each in opened) + (0 if keeps else 50)

    def middle() -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(40))
        return status_of_fork(innermost)

    async def forking(world: RealWorld) -> int:
        return status_of_fork(middle)

    opened: list[int] = []
    assert Processes(tmp_path)({WORKER: forking, REMOTE: idle})[WORKER] == 0


def test_a_descriptor_is_closed_in_children_once() -> None:
    def number_is_used_again() -> int:
        if is_open(first):
            return 2
        os.dup2(os.open(os.devnull, os.O_RDONLY), first)
        return status_of_fork(lambda: not is_open(first))

    def inside() -> int:
        close_in_children(first)
        return status_of_fork(number_is_used_again)

    first = os.open(os.devnull, os.O_RDONLY)
    try:
        assert status_of_fork(inside) == 0
    finally:
        os.close(first)


async def wait_unguarded(world: RealWorld) -> None:
    ctypes.CDLL(None).prctl(1, 0)  # the kernel will not end us with our parent
    await wait_long(world)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@for_each("role", [wait_long, wait_dead, wait_unguarded])
def test_kill_minus_9_of_the_parent_leaves_no_children(tmp_path: Path, role: Any) -> None:
    names = ["a/scheduler", "a/worker0", "b/server0", "b/global0"]
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            fleet(tmp_path, dict.fromkeys(names, role)).run(lambda event: os.write(write_end, b"."))
        finally:
            os._exit(1)
    os.close(write_end)
    assert os.read(read_end, 1) == b"."
    nodes = psutil.Process(parent).children()
    assert len(nodes) == 4
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    os.close(read_end)
    end_s = time.monotonic() + 240  # on a busy machine, a process that was killed takes seconds to be gone
    while (left := [node for node in nodes if _runs(node)]) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert left == []


def test_twelve_nodes_register_with_their_scheduler(tmp_path: Path) -> None:
    names = ["a/scheduler", *(f"{site}/worker{n}" for site in "abc" for n in range(3)), "a/server0", "b/server0"]
    programs: dict[str, Any] = {name: sending("a/scheduler", Message(MessageKind.REGISTER)) for name in names[1:]}
    programs["a/scheduler"] = receiving(11)
    results = Processes(tmp_path)(programs)
    assert {message.sender for message in results["a/scheduler"]} == set(names[1:])


def test_nodes_connect_while_their_parent_works_and_the_scheduler_begins_afterwards(tmp_path: Path) -> None:
    register = sending("a/scheduler", Message(MessageKind.REGISTER))
    worked: list[bool] = []

    async def registering(world: RealWorld) -> None:
        await register(world)
        await world.drain("a/scheduler")  # it is connected
        (tmp_path / "connected").touch()

    async def scheduling(world: RealWorld) -> Message:
        (tmp_path / "begun").touch()
        return await world.receive("a registration")

    def work() -> None:
        while not (tmp_path / "connected").exists():
            time.sleep(0.01)
        worked.append((tmp_path / "begun").exists())

    processes = Processes(tmp_path)
    programs = {"a/scheduler": scheduling, WORKER: registering}
    with contextlib.closing(Hold(work)) as hold:
        for _ in range(2):  # in a second attempt, nothing is left to do
            Fleet(tiny_plan(programs), processes.launch(programs, hold=hold)).run()
    assert worked == [False] and (tmp_path / "begun").exists()


def test_the_core_of_a_node_that_is_killed_while_it_computes_becomes_free(tmp_path: Path) -> None:
    """A run that goes on without it: with one core, nobody would ever make a step again."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def dying(world: RealWorld) -> None:
        await world.sleep(0.3)  # when all have met
        await world.compute(Work("step"), die)

    async def steady(world: RealWorld) -> None:
        await world.sleep(0.8)
        await world.compute(Work("step"), lambda: None)

    programs = {"a/scheduler": idle, WORKER: dying, REMOTE: steady}
    plan = tiny_plan(programs, step_deadline_s=240.0)
    plan = dataclasses.replace(plan, recovery=dataclasses.replace(plan.recovery, on_failure="continue"))
    under_test = Fleet(plan, Processes(tmp_path).launch(programs, cores=1))
    exits = {end.node: end for end in under_test.run()}
    assert exits[WORKER].code == -signal.SIGKILL and exits[REMOTE].code == 0


def test_the_core_of_a_node_that_is_stopped_while_it_computes_becomes_free(tmp_path: Path) -> None:
    """With one core, the others would stand still with it. What goes on has none to release."""
    computes, other_is_done = tmp_path / "computes", tmp_path / "done"

    def compute() -> None:
        computes.touch()
        while not other_is_done.exists():
            time.sleep(0.005)

    async def stopped(world: RealWorld) -> None:
        await world.compute(Work("step"), compute)
        await world.compute(Work("step"), lambda: None)

    async def steady(world: RealWorld) -> None:
        while not computes.exists():
            await world.sleep(0.005)
        await world.compute(Work("step"), other_is_done.touch)

    class Stopping(NodeProcesses):
        is_stopped = False

        def wait(self, timeout_s: float) -> Any:
            if computes.exists() and not self.is_stopped:
                self.is_stopped = self.send_signal(WORKER, signal.SIGSTOP)
            elif other_is_done.exists() and self.is_stopped:
                self.send_signal(WORKER, signal.SIGCONT)
            return super().wait(min(timeout_s, 0.02))

    programs = {"a/scheduler": idle, WORKER: stopped, REMOTE: steady}
    plan, launch = tiny_plan(programs, step_deadline_s=240.0), Processes(tmp_path).launch(programs, cores=1)
    assert not any(end.failed for end in Fleet(plan, launch, Stopping).run())


MONITOR, AGAIN = "a/scheduler", "west/worker1"  # the second is killed by a fault, and starts again
TRAIN = {"kind": "train", "t": 0.0}


def ended(node: str, code: int = 0, **report: Any) -> ProcessEnd:
    return ProcessEnd(node, code, report or ({"code": 0} if code == 0 else {}))


class Turns(FaultClock):
    """Faults of which a second is a turn of the fleet; training begins in the first."""

    turn = -1.0

    def take(self, now_s: float) -> Iterator[Due]:
        self.turn += 1
        return super().take(self.turn)


class Scripted:
    """Processes that tell in each turn what a test says, and all end well after these. None dies of a signal.

    ``history``: whom each call has started, and who has ended.
    """

    def __init__(self, *turns: list[Any], starts_for_s: float = 0.0) -> None:
        self._turns, self._starts_for_s = iter(turns), starts_for_s
        self._running, self.history = set[str](), list[list[str] | str]()

    def __call__(self, *_: object) -> Any:
        return self

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __contains__(self, node: str) -> bool:
        return node in self._running

    def __len__(self) -> int:
        return len(self._running)

    def start(self, nodes: list[str], since_s: float | None) -> None:
        time.sleep(self._starts_for_s)
        self._running.update(nodes)
        self.history.append(list(nodes))

    def wait(self, timeout_s: float) -> list[Any]:
        events = next(self._turns, None)
        if events is None:
            return [self._running.discard(node) or ended(node) for node in sorted(self._running)]
        ends = [event.node for event in events if isinstance(event, ProcessEnd)]
        self._running.difference_update(ends)
        self.history.extend(ends)
        return events

    def send_signal(self, node: str, number: signal.Signals) -> bool:
        return node in self._running

    def send_signal_to_all(self, number: signal.Signals) -> None: ...

    def explain(self, node: str, code: int) -> str:
        return ""


def going_on(nodes: list[str], tmp_path: Path, processes: Scripted, killed: str = AGAIN, **deadlines: float) -> Fleet:
    """A run that goes on without what it has lost, of which a fault kills a node for two turns."""
    plan = tiny_plan(nodes, **deadlines)
    workers = tuple(name for name in nodes if name.startswith("b/worker"))
    plan = dataclasses.replace(
        plan,
        nodes=tuple(
            dataclasses.replace(node, children=workers) if node.role == "server" else node for node in plan.nodes
        ),
        recovery=dataclasses.replace(plan.recovery, on_failure="continue"),
        faults=(FaultPlan(kind="kill", targets=(killed,), at_s=0.0, for_s=2.0),),
    )
    return Fleet(plan, Processes(tmp_path).launch({}, due=Turns(plan)), processes)


def test_nodes_that_another_machine_starts_slowly_have_time_to_advance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start of the run, and when one starts again."""
    monkeypatch.setattr("testbed.realtime.fleet.STATUS_INTERVAL_S", 0.0)
    processes = Scripted([TRAIN], [ended(AGAIN, -9)], [], starts_for_s=0.6)
    going_on([MONITOR, AGAIN], tmp_path, processes, step_deadline_s=0.5).run()
    assert processes.history == [[MONITOR, AGAIN], AGAIN, [AGAIN]]


def test_a_node_that_dies_slowly_starts_again_once_it_is_dead(tmp_path: Path) -> None:
    """On a busy machine a killed process may still be there when the fault that killed it is over."""
    error = {"kind": "error", "node": AGAIN, "cause": "NodeLost", "message": "", "t": 1.0}
    processes = Scripted([TRAIN], [error], [], [ended(AGAIN, -9)])
    exits = going_on([MONITOR, AGAIN], tmp_path, processes).run()
    assert processes.history == [[MONITOR, AGAIN], AGAIN, [AGAIN]]
    times = [end.at_s for end in exits if end.node == AGAIN]
    assert times == [1.0, math.inf], "the error of the process that has ended is not that of the next"


@for_each(
    ("end", "again"),
    [
        (ended("b/worker0", 1, cause="PeerLost"), [["b/worker0"]]),
        (ended("b/worker0"), []),
    ],
)
def test_workers_that_end_after_their_server_has_returned_start_again(
    tmp_path: Path, end: ProcessEnd, again: list[list[str]]
) -> None:
    """Unless they have ended well."""
    nodes = [MONITOR, "a/worker0", "b/server0", "b/worker0", "b/worker1"]
    lost = [ended("b/server0", -9), ended("b/worker1", 1, cause="PeerLost")]
    processes = Scripted([TRAIN], lost, [], [end])
    going_on(nodes, tmp_path, processes, killed="b/server0").run()
    assert [each for each in processes.history if isinstance(each, list)] == [nodes, ["b/server0", "b/worker1"], *again]


@for_each(
    ("cause", "heard", "fails"),
    [("WaitTimeout", 0, False), ("RunFailed", 0, False), ("RunFailed", 1, True), ("ValueError", 0, True)],
)
def test_a_node_that_starts_again_and_reaches_nobody_does_not_end_the_run(
    tmp_path: Path, cause: str, heard: int, fails: bool
) -> None:
    """As where its link is down for longer than a rendezvous may take; a broken program is an error at any time."""
    status = {"kind": "status", "node": AGAIN, "activity": heard, "waits": []}
    end = ended(AGAIN, 1, cause=cause, message="could not reach the scheduler")
    under_test = going_on([MONITOR, AGAIN], tmp_path, Scripted([TRAIN], [ended(AGAIN, -9)], [], [status, end]))
    with pytest.raises(RunFailed, match="could not reach the scheduler") if fails else contextlib.nullcontext():
        under_test.run()
    assert [end.failed for end in under_test.exits if end.node == AGAIN] == [False, fails]


def test_the_port_of_a_node_that_is_away_stays_its_own() -> None:
    """Else another process may get it, and the node could not come back. Who calls it meanwhile is refused."""
    endpoints = Endpoints(tiny_plan([WORKER]), in_namespaces=False)
    address = endpoints.addresses[WORKER]
    endpoints.close()  # its process has these sockets, and ends
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    endpoints.open([WORKER])
    socket.create_connection(address).close()
    endpoints.release()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # that connection may be in TIME_WAIT
        other.bind(address)
        other.listen()
