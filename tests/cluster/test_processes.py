"""The driver's view of nodes on several machines, with agents that are made up."""

from __future__ import annotations

import os
import signal
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import pytest

from testbed.cluster import agents as drivers_side
from testbed.cluster import control
from testbed.cluster.clocks import ClockComparison, ClockSample
from testbed.cluster.processes import AgentProcesses
from testbed.engine.checkpoint import CheckpointFiles, Members
from testbed.errors import NodeLost, RunFailed, ScenarioError
from testbed.execution import agent, cluster
from testbed.execution.recovery import Attempts
from testbed.plan.instant import Instant
from testbed.plan.model import Plan
from testbed.realtime.node_processes import ProcessEnd
from tests.faults.runs import plan_of


class Connections:
    """Those to agents that answer everything but ``refused``."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.asked, self.watched = refused, list[str](), set[int]()
        self.events: deque[Any] = deque()

    def watch(self, descriptor: int) -> None:
        assert descriptor not in self.watched, "as a selector"
        self.watched.add(descriptor)

    def unwatch(self, descriptor: int) -> None:
        self.watched.remove(descriptor)

    def ask_all(self, questions: dict[str, Any], limit_s: float = 0.0) -> dict[str, Any]:
        do = {question["do"] for question in questions.values()}.pop()
        self.asked.append(do)
        if do == self.refused:
            raise NodeLost("its machine is lost")
        return {name: {} for name in questions}


class Agents(list[Any]):
    def __init__(self, connections: Connections) -> None:
        placement = SimpleNamespace(ports={"a/worker0": 0}, data_center="a")
        super().__init__([SimpleNamespace(name="a/machine0", placement=placement, lost="", epoch_there_ns=0)])
        self.connections = connections

    def start_missing(self) -> None:
        pass


def begun(connections: Connections, wake: int) -> AgentProcesses:
    plan: Any = None
    agents: Any = Agents(connections)
    return AgentProcesses(plan, agents, 1, wake, None)


@pytest.mark.parametrize("refused", ["listen", "begin"])
def test_an_attempt_whose_machine_is_lost_while_it_begins_leaves_room_for_another(refused: str) -> None:
    """What had begun elsewhere is ended; and its descriptor is watched no more, as the next one has its number."""
    connections = Connections(refused)
    with pytest.raises(NodeLost):
        begun(connections, 7)
    assert connections.asked[-1] == "end" and not connections.watched
    connections.refused = ""
    with begun(connections, 7):
        assert connections.watched == {7}
    assert not connections.watched


def test_who_killed_a_node_is_told_by_its_machine() -> None:
    connections = Connections()
    wake = os.eventfd(0)
    processes = begun(connections, wake)
    (agent,) = processes._agents
    processes._running["a/worker0"] = agent
    ended = {"ended": "a/worker0", "code": -9, "report": {}, "killer": "the kernel, out of memory"}
    connections.events.append((agent, ended))
    assert list(processes.wait(0.0)) == [ProcessEnd("a/worker0", -9, {}, "the kernel, out of memory")]
    os.close(wake)


def test_machines_that_were_lost_are_not_measured_after_the_run() -> None:
    """A run that has gone on without one of them has ended well."""

    def machine(site: str, lost: str = "") -> SimpleNamespace:
        return SimpleNamespace(placement=SimpleNamespace(data_center=site, seen_from=lambda here: site), lost=lost)

    def measured(source: Any, target: Any, to: str) -> dict[str, Any]:
        if west in (source, target):
            raise NodeLost("lost just now")
        return {"rtt_s": 0.5}

    west, recorded = machine("west"), dict[str, Any]()
    driver: Any = SimpleNamespace(
        agents=[machine("hub", "lost"), machine("hub"), machine("east", "lost"), west], measured=measured,
        record=lambda kind, path, when, **found: recorded.update({path: found}),
    )  # fmt: skip
    cluster._measure(plan_of(on="cluster"), driver, "after")
    assert recorded == {"hub>west": {"failed": "lost just now"}, "west>hub": {"failed": "lost just now"}}
    driver.agents.append(machine("east"))
    cluster._measure(plan_of(on="cluster"), driver, "after")
    assert recorded["east>hub"] == recorded["hub>east"] == {"rtt_s": 0.5}
    with pytest.raises(NodeLost):
        cluster._measure(plan_of(on="cluster"), driver, "before")


def test_a_measurement_that_fails_after_the_run_fails_no_run() -> None:
    machines = [SimpleNamespace(lost="", placement=SimpleNamespace(data_center=site, seen_from=lambda here: here))
                for site in ("hub", "west")]  # fmt: skip
    measured, recorded = mock.Mock(side_effect=RunFailed("OSError: address in use")), list[Any]()
    driver: Any = SimpleNamespace(
        agents=machines, measured=measured, record=lambda kind, **fields: recorded.append(fields)
    )
    cluster._measure(plan_of(on="cluster"), driver, "after")
    assert [each["failed"] for each in recorded] == ["OSError: address in use"] * 2
    with pytest.raises(RunFailed, match="address in use"):
        cluster._measure(plan_of(on="cluster"), driver, "before")


def test_a_deployment_resumes_the_newest_checkpoint_that_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, told, given = plan_of(on="cluster"), list[Any](), list[Any]()
    files = CheckpointFiles(tmp_path / "checkpoints", plan)
    for round_ in (999_998, 999_999):
        digests = {"a": files.write(round_, "a", {"round": round_})}
        files.commit(round_, digests, Instant(0.0), Members(absent=("west/worker0", "b"), waiting=("b",)))
    (tmp_path / "checkpoints" / ".ckpt-000003.tmp").mkdir()

    def attempt(plan: Plan, directory: Path, report: Any, epoch_ns: int, make_fleet: Any, wait_s: Any) -> None:
        with Attempts(plan, directory, report) as attempts:
            make_fleet(attempts)._start_processes(plan, None, 0, 0)
        given.append(attempts.clock.absent)

    monkeypatch.setattr(cluster, "attempt_until_done", attempt)
    monkeypatch.setattr(cluster, "AgentProcesses", lambda *about: given.append(about[-1]))
    agents: Any = SimpleNamespace(connections=SimpleNamespace(wait_s=None))

    def resumed() -> Any:
        given.clear()
        cluster.run_attempts(plan, tmp_path, told.append, 0, agents)
        return given[0]

    assert resumed() == tmp_path / "checkpoints" / "ckpt-1000000" and given[1] == frozenset({"west/worker0"})
    assert not (tmp_path / "checkpoints" / ".ckpt-000003.tmp").exists()
    (tmp_path / "checkpoints" / "ckpt-1000000" / "a.pt").write_bytes(b"damaged")
    assert resumed() == tmp_path / "checkpoints" / "ckpt-999999"
    assert [line["message"] for line in told if line["kind"] == "warning"] == [
        "not used: ckpt-1000000: a.pt is damaged (its SHA-256 differs)"
    ]
    (tmp_path / "checkpoints" / "ckpt-999999" / "manifest.json").unlink()
    with pytest.raises(ScenarioError, match=r"no checkpoint is intact: .*ckpt-999999: .*No such file"):
        resumed()


def test_the_clock_of_a_far_machine_is_known_when_nodes_start() -> None:
    """Also if its answers to the first questions take longer than the driver asks them."""
    ahead_ns, clock = 10**15, ClockComparison()  # it was started days earlier than the driver's machine
    far, there = SimpleNamespace(name="a", lost="", clock=clock, offset_at_epoch_ns=0), dict[str, Any]()

    def ask_all(questions: Any, limit_s: float) -> None:
        clock.add(ClockSample(0, ahead_ns, 10**8))

    agents: Any = drivers_side.Agents.__new__(drivers_side.Agents)
    agents._all, agents.placements, agents._start = [], [SimpleNamespace(name="a")], lambda placement: far
    agents._await_hello = lambda new: there.update(a=far)
    agents.connections = SimpleNamespace(
        by_name=there, ping=lambda agent: None, turn=lambda timeout_s: None, ask_all=ask_all
    )
    agents.start_missing()
    assert far.offset_at_epoch_ns == ahead_ns


def test_events_are_corrected_when_all_have_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails has helpers which still write: what comes after the correction would be by another clock."""
    done = list[str]()

    class Recorded:
        connections = SimpleNamespace()

        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def __getattr__(self, name: str) -> Any:
            return lambda: done.append(name)

    monkeypatch.setattr(cluster, "Agents", Recorded)
    starter: Any = mock.MagicMock(address="loopback")
    with pytest.raises(RunFailed), cluster.driving(plan_of(on="cluster"), tmp_path, print, starter):
        raise RunFailed("a node")
    assert done == ["report", "stop", "correct_events"], "the machines are described while they are there"


def test_an_agent_that_quits_sends_what_its_network_has_written_last() -> None:
    done = list[str]()
    ending: Any = agent.Agent.__new__(agent.Agent)
    ending._quit, ending._attempt = True, SimpleNamespace(close=lambda: done.append("nodes end"))
    ending._part = SimpleNamespace(close=lambda: done.append("network ends"))
    ending._sent_files = SimpleNamespace(send_new=lambda send: done.append("files are sent"))
    ending._connection = SimpleNamespace(send=None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ending.run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["nodes end", "network ends", "files are sent"]


def test_a_peer_that_takes_little_at_a_time_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, taken = [0.0], list[bytes]()

    class Slow:
        """Takes a byte every twenty seconds, if ``left`` any more."""

        left, blocks = 4, True

        def send(self, data: memoryview) -> int:
            self.blocks = not self.blocks
            if self.blocks:
                raise BlockingIOError
            self.left -= 1
            taken.append(bytes(data[:1]))
            return 1

    def wait(self: Any, wants: int, end_s: float) -> bool:
        now_s[0] += 20.0 if sock.left > 0 else 1000.0
        return now_s[0] < end_s

    monkeypatch.setattr(control.ControlConnection, "_wait", wait)
    monkeypatch.setattr(control.time, "monotonic", lambda: now_s[0])
    sock, connection = Slow(), control.ControlConnection.__new__(control.ControlConnection)
    connection._sock = sock  # type: ignore[assignment]
    connection._write(b"abcd")
    assert b"".join(taken) == b"abcd" and now_s[0] > control.SEND_LIMIT_S
    with pytest.raises(control.ControlLost, match="taken nothing for 30 s"):
        connection._write(b"abcd")


def test_times_of_lines_are_by_the_drivers_clock() -> None:
    connections, wake = Connections(), os.eventfd(0)
    processes = begun(connections, wake)
    there: Any = SimpleNamespace(run_time_s=lambda t: t - 5.0)
    line = {"kind": "evaluate", "t": 8.0, "t0": 7.0, "snapshot_t": 6.0, "accuracy": 0.5}
    connections.events.append((there, {"line": line}))
    assert list(processes.wait(0.0)) == [line | {"t": 3.0, "t0": 2.0, "snapshot_t": 1.0}]
    os.close(wake)
