"""Deployments on three machines that are processes with an address of their own on loopback."""

from __future__ import annotations

import errno
import math
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

import testbed
from testbed import api
from testbed.cluster import control
from testbed.cluster.agent_connections import AgentConnections, AgentHandle
from testbed.cluster.control import ControlLost
from testbed.cluster.files import ReceivedFiles
from testbed.cluster.ray_agents import AgentActor
from testbed.cluster.starting import Ticket
from testbed.errors import NodeLost, WaitTimeout
from testbed.execution import agent, cluster, host, record
from testbed.execution import sweep as sweeps
from testbed.execution.sweep_points import points_of
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.results import tables
from testbed.results.events import STOPPED
from testbed.results.fidelity import assess
from testbed.scenario.load import load
from testbed.scenario.sweep import SweepSettings
from tests.cluster.forked import ForkedAgent, ForkedAgents, Skew
from tests.cluster.sweeping import SMALL
from tests.descriptors import high_pair
from tests.end_to_end.runs import QUICKSTART, Finished, read_events, run_scenario
from tests.faults import runs as fault_runs
from tests.faults.runs import RESTART, faults
from tests.kvstore.failing import assert_named, run_failing

STEADY = "device.step_time=20 ms"
SHORT = ("training.rounds=4", "training.evaluate_every=4")


def deploy(
    directory: Path, *overrides: str, starter: ForkedAgents | None = None, report: Any = lambda line: None,
    scenario: Path = QUICKSTART,
) -> Finished:  # fmt: skip
    """Run a scenario on forked agents to its end."""
    plan = build_plan(load(scenario, ("cluster.address=loopback", *overrides)), "cluster")
    directory.mkdir(parents=True)
    (directory / "plan.json").write_bytes(to_json(plan))
    agents = starter or ForkedAgents()
    before = host.BACK_ENDS["cluster"]
    host.BACK_ENDS["cluster"] = lambda *run: cluster.run(*run, agents)
    try:
        outcome = host.attempt(plan, directory, report)
    finally:
        host.BACK_ENDS["cluster"] = before
    return Finished(plan, outcome, directory, read_events(directory))


@pytest.fixture(autouse=True)
def _nothing_is_left(directory_of_agents: Path) -> Iterator[None]:
    """Neither processes nor files of agents."""
    before = psutil.Process().children(recursive=True)
    yield
    assert [child for child in psutil.Process().children(recursive=True) if child not in before] == []
    assert list(directory_of_agents.glob("testbed-agent-*")) == []


@pytest.fixture(scope="module")
def simulated_hash(tmp_path_factory: pytest.TempPathFactory) -> str:
    (value,) = run_scenario(tmp_path_factory.mktemp("simulated") / "run", "simulate", *SHORT).hashes("worker")
    return value


def test_it_ends_with_the_bits_of_the_simulator_and_the_report_says_what_links_and_clocks_were(
    tmp_path: Path, simulated_hash: str
) -> None:
    """A clock that is known to 3 ms is a reason to distrust times; one of half a millisecond is none."""
    told: list[dict[str, Any]] = []
    run = deploy(tmp_path / "run", *SHORT, report=told.append)
    assert run.outcome.status == "done", run.outcome.message
    for role in ("worker", "server", "global_server"):
        assert run.hashes(role) == {simulated_hash}
    assert {event["path"] for event in run.of_kind("path") if event["when"] == "before"} == {
        "frankfurt>virginia", "tokyo>virginia", "virginia>frankfurt", "virginia>tokyo",
    }  # fmt: skip
    frames = {name: tables.frame(table) for name, table in tables.build(run.directory / "events").items()}
    plan = msgspec.json.decode(to_json(run.plan))
    capabilities = {"cluster": told[-1]["cluster"]}
    report = assess(frames, plan, capabilities)
    assert [(row["path"], row["when"]) for row in report["paths"]] == [
        (path, when)
        for path in ("frankfurt>virginia", "tokyo>virginia", "virginia>frankfurt", "virginia>tokyo")
        for when in ("before", "during", "after")
    ]
    for row in report["paths"]:
        assert 0 < row["min_rtt_s"] <= row["rtt_s"] < 0.1 and row["packets"] > 0 and 0 <= row["loss"] < 0.5
        assert (row["rate_bps"] is None) == (row["when"] == "during")
    capabilities["cluster"]["machines"][2]["clock"]["error_s"] = 0.003
    (reason,) = set(assess(frames, plan, capabilities)["reasons"]) - set(report["reasons"])
    assert reason.startswith("tokyo/machine0: its clock is known to 3.0 ms only")
    capabilities["cluster"]["machines"][2]["clock"]["error_s"] = 0.0005
    assert assess(frames, plan, capabilities)["reasons"] == report["reasons"]


@pytest.mark.usefixtures("agents")
def test_its_results_are_read_again_and_are_those_of_a_point_of_a_sweep(tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(SMALL + "cluster: {address: loopback}\n")
    (point,) = points_of(scenario, SweepSettings(), "cluster")
    job = sweeps.SweepJob(tmp_path / "sweep", scenario, SweepSettings(), [point])
    run = record.prepare(job.path(point), point.plan, scenario=b"", resolved=point.resolved, capabilities={})
    outcome = host.attempt(point.plan, run.path, lambda event: record.add_capabilities(run, event))
    ended = record.conclude(run, point.plan, outcome, "", 1.0)
    run.set_status(ended.outcome.status, ended.result["plan_sha256"], ended.outcome.message)
    (row,) = sweeps.execute(job, lambda point, state: None)
    assert (row["back_end"], row["status"], row["rounds"]) == ("cluster", "done", 4), row["message"]
    assert api.open_run(job.path(point)).result == ended.result


@pytest.mark.usefixtures("agents")
def test_a_killed_node_ends_the_run_and_is_named(tmp_path: Path) -> None:
    ended = fault_runs.run(tmp_path, STEADY, faults("kind: kill, node: east/server0, round: 2"), on="cluster")
    assert str(ended.error) == "east/server0 was killed by signal 9, SIGKILL (a fault of the scenario)"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The parameters at the end of a run without faults."""
    return fault_runs.run(tmp_path_factory.mktemp("calm") / "run", STEADY).hashes()


@pytest.mark.slow  # 4 s
@pytest.mark.usefixtures("agents")
def test_a_restart_from_a_checkpoint_whose_parts_are_on_several_machines(tmp_path: Path, calm: set[str]) -> None:
    kill = faults("kind: kill, node: hub/global0, round: 7")
    ended = fault_runs.run(tmp_path / "hit", STEADY, "checkpoint.every=3", RESTART, kill, on="cluster")
    assert ended.error is None and ended.hashes() == calm
    assert [event["begins_t"] > event["t"] for event in ended.events("restart")] == [True]
    (resumed,) = [line["name"] for line in ended.told if line["kind"] == "stage" and "resum" in line["name"]]
    assert resumed in ("resuming after round 5", "resuming after round 8")  # on a busy machine the kill comes later
    assert sorted(path.name for path in (tmp_path / "hit" / "checkpoints").iterdir()) == ["ckpt-000009", "ckpt-000012"]


@pytest.mark.slow  # 4 s
def test_a_lost_machine_is_replaced_at_the_restart(tmp_path: Path, agents: ForkedAgents, calm: set[str]) -> None:
    plan = fault_runs.plan_of(STEADY, "checkpoint.every=3", RESTART, on="cluster")

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 6 and len(agents.started) == 3:
            with suppress(ProcessLookupError):  # each of six workers says so
                os.kill(agents.started[1].pid, signal.SIGKILL)

    cluster.run(plan, tmp_path / "hit", report, agents)
    assert len(agents.started) == 4
    events = read_events(tmp_path / "hit")
    assert {event["parameters_sha256"] for event in events if event.get("parameters_sha256")} == calm
    (restart,) = [event for event in events if event["kind"] == "restart"]
    assert restart["message"].startswith("east/") and "machine east/machine0 (127.0.0.3) is lost" in restart["message"]


def test_without_a_restart_a_lost_machine_is_named(tmp_path: Path, agents: ForkedAgents) -> None:
    plan = fault_runs.plan_of(STEADY, on="cluster")

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 2:
            with suppress(ProcessLookupError):
                os.kill(agents.started[1].pid, signal.SIGKILL)

    with pytest.raises(NodeLost, match=r"^east/\w+: its machine east/machine0 \(127.0.0.3\) is lost: its agent has"):
        cluster.run(plan, tmp_path, report, agents)


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize(
    ("kind", "place"),
    [("exit with a text", "end"), pytest.param("segmentation fault", "connected", marks=pytest.mark.slow)],
)  # 1 s
def test_why_a_script_failed_is_named(kind: str, place: str, tmp_path: Path) -> None:
    assert_named(tmp_path / "a", kind, run_failing(tmp_path / "a", "cluster", kind, place))


def test_an_interrupt_ends_all_nodes_in_good_order(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 2 and not told:
            told.append(line)
            os.kill(os.getpid(), signal.SIGINT)

    run = deploy(tmp_path / "run", "training.rounds=200", report=report)
    assert run.outcome.status == "interrupted"
    stopped = {event["node"] for event in run.of_kind("error") if event["cause"] == STOPPED}
    assert {"virginia", "frankfurt", "tokyo"} == {node.split("/")[0] for node in stopped}, "each machine is told"


@pytest.mark.slow  # 6 s
@pytest.mark.usefixtures("agents")
def test_a_run_that_stands_still_ends_with_the_waits_of_all_machines(tmp_path: Path) -> None:
    deadlines = "timeouts={heartbeat: 0.2 s, dead_after: 1 s, tcp_user_timeout: 1 s, step_deadline: 2 s}"
    ended = fault_runs.run(tmp_path, "device.step_time=1 min", deadlines, on="cluster")
    assert isinstance(ended.error, WaitTimeout)
    graph = "\n".join(ended.error.__notes__)
    for node in ("east/server0", "west/server0", "hub/global0"):
        assert re.search(f"{node} waits for .* since t = ", graph), graph
    assert "west/worker0 waits for nothing: it computes, or does not run" in graph


def free_ports(count: int) -> int:
    """The first of some ports in a row that are free at all addresses of loopback."""
    for first in range(21_000, 29_000, count):
        with suppress(OSError), ExitStack() as bound:
            for port in range(first, first + count):
                bound.enter_context(socket.create_server(("0.0.0.0", port)))
            return first
    raise AssertionError("no free ports")


@contextmanager
def forwarding(outside: str, inside: str, ports: Iterable[int]) -> Iterator[list[int]]:
    """Forward connections to one address to another, as a router does; yield the ports of those that came."""
    came: list[int] = []
    listeners = [socket.create_server((outside, port)) for port in ports]

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                caller, _ = listener.accept()
                port = listener.getsockname()[1]
                called = socket.create_connection((inside, port))
                came.append(port)
                for pair in ((caller, called), (called, caller)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    for listener in listeners:
        threading.Thread(target=serve, args=[listener], daemon=True).start()
    try:
        yield came
    finally:
        for listener in listeners:
            listener.close()


def least_transfer_s(run: Finished, source: str, target: str) -> float:
    """The shortest transfer between two data centres."""
    return min(
        event["t"] - event["t0"] for event in run.of_kind("transfer")
        if (event["source"].split("/")[0], event["target"].split("/")[0]) == (source, target)
    )  # fmt: skip


def test_events_are_by_one_clock_though_each_machine_has_its_own(
    tmp_path: Path, simulated_hash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the clocks are not known when the run begins: all that is learned later counts for all events.

    No clock drifts faster than Linux corrects one (``WANDER``), which is what bounds the error between two questions.
    """
    monkeypatch.setattr("testbed.cluster.agents._FIRST_PINGS", 0)
    skews = {"tokyo/machine0": Skew(0.05), "frankfurt/machine0": Skew(-0.05, drift_ppm=400)}
    told: list[dict[str, Any]] = []
    run = deploy(tmp_path / "run", *SHORT, starter=ForkedAgents(skews), report=told.append)
    assert run.hashes("worker") == {simulated_hash}
    (about,) = [line["cluster"]["machines"] for line in told if line["kind"] == "capabilities"]
    clocks = {each["name"]: each["clock"] for each in about}
    for site in ("tokyo", "frankfurt"):
        there, back = least_transfer_s(run, "virginia", site), least_transfer_s(run, site, "virginia")
        earliest_s = -1e-3 - clocks[f"{site}/machine0"]["error_s"]  # on a busy machine the error is larger, as is known
        assert earliest_s < there < 2e-2 and earliest_s < back < 2e-2 and abs(there - back) < 2e-2
    assert clocks["virginia/machine0"]["error_s"] == 0, "that machine has the driver's clock"
    assert abs(clocks["tokyo/machine0"]["offset_s"] - 0.05) < clocks["tokyo/machine0"]["error_s"] < 1e-2


@pytest.mark.slow  # 3 s
@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize(
    "hit",
    [(), pytest.param((RESTART, faults("kind: kill, node: east/worker0, round: 4")), marks=pytest.mark.slow)],  # 4 s
    ids=["calm", "restart"],
)
def test_everything_between_machines_can_be_encrypted(hit: tuple[str, ...], tmp_path: Path, calm: set[str]) -> None:
    """That includes the connection between driver and agents; a restart uses the certificate again."""
    ended = fault_runs.run(tmp_path / "hit", STEADY, "transport.tls=true", *hit, on="cluster")
    assert ended.error is None and ended.hashes() == calm


@pytest.mark.slow  # 3 s
@pytest.mark.usefixtures("agents")
def test_nodes_behind_address_translation_are_reached_where_they_say(tmp_path: Path, calm: set[str]) -> None:
    """Nodes of east listen at 127.0.0.33 and say 127.0.0.77, which forwards; west listens at every address."""
    first = free_ports(4)
    sites = (
        f"cluster.data_centers={{east: {{bind: 127.0.0.33, advertise: 127.0.0.77, ports: {first}-{first + 3}}}, "
        "west: {bind: 0.0.0.0}}"
    )
    with forwarding("127.0.0.77", "127.0.0.33", range(first, first + 4)) as count:
        ended = fault_runs.run(tmp_path / "hit", STEADY, sites, on="cluster")
    assert ended.error is None and ended.hashes() == calm
    assert len(count) >= 2, "the others reach the server and the workers of east through the translation"


@pytest.mark.parametrize(
    ("key", "name", "sends", "why"),
    [
        (b"x" * 32, "a", [{"hello": {}}], "wrong code"),
        (b"k" * 32, "b", [], "no agent 'b' is awaited"),
        (b"k" * 32, "a", [], "no first message in time"),
        (b"k" * 32, "a", [{"hello": "x" * (2 << 20)}], "a message of"),
    ],
    ids=["key", "name", "silent", "endless"],
)
def test_a_stranger_is_no_agent(key: bytes, name: str, sends: list[dict[str, Any]], why: str) -> None:
    """Without the key of the ticket, with another name, and if it says nothing, or too much."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        ours = pool.submit(lambda: control.accept(listener.accept()[0], {"a": b"k" * 32}, None, 0.5))
        with suppress(ControlLost):
            theirs = control.connect(listener.getsockname(), name, key, None, 5.0)
            for message in sends:
                theirs.send(message)
        with pytest.raises(ControlLost, match=why):
            ours.result(10)


def test_a_message_that_was_altered_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        ours = pool.submit(lambda: control.accept(listener.accept()[0], {"a": b"k" * 32}, None, 5.0))
        theirs = control.connect(listener.getsockname(), "a", b"k" * 32, None, 5.0)
        theirs.send({"hello": {}})
        theirs._sent += 1
        theirs.send({"do": "quit"})
        name, driver, first = ours.result(10)
        assert (name, first) == ("a", {"hello": {}})
        with pytest.raises(ControlLost, match="wrong code"):
            for _ in range(1000):
                assert list(driver.receive()) == []
                time.sleep(0.01)
        theirs.close()
        driver.close()


@pytest.fixture
def awaiting() -> Iterator[tuple[AgentConnections, AgentHandle]]:
    """A driver that awaits an agent ``a`` with the key ``k…``."""
    connections = AgentConnections(None, 60.0)
    started: Any = SimpleNamespace(lost=lambda: "")
    placement: Any = SimpleNamespace(name="a", machine=SimpleNamespace(address="here"))
    handle = AgentHandle(placement, started, ReceivedFiles(Path()), 0)
    connections.expect("a", b"k" * 32)
    connections.by_name["a"] = handle
    yield connections, handle
    connections._listener.close()
    connections.close()


def assert_admits(connections: AgentConnections, handle: AgentHandle) -> None:
    """The agent itself connects, and all that it sends at once is taken."""
    agent = control.connect(("127.0.0.1", connections.port), "a", b"k" * 32, None, 5.0)
    agent.send({"hello": {"clock_of": "mine"}})
    agent.send({"line": 1})
    end_s = time.monotonic() + 5
    while not connections.events:
        assert time.monotonic() < end_s, "the agent is kept out"
        connections.turn(0.01)
    assert handle.about == {"clock_of": "mine"} and connections.events.popleft()[1] == {"line": 1}
    agent.close()


def test_an_agent_of_ray_imports_what_was_sent_and_not_what_lies_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "__init__.py").write_text("raise SystemExit('another testbed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(Path(testbed.__file__).parents[1]), *sys.path])
    ticket = Ticket(name="a", driver=("127.0.0.1", 1), key="", secret="", run_id="", plan="", bind="", nodes=(),
                    working_directory="/")  # fmt: skip
    actor = AgentActor(ticket)
    assert actor.wait() and "another testbed" not in actor.output()
    actor.stop()


def test_an_agent_serves_its_driver_whatever_the_number_of_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = high_pair()
    came = list[Any]()
    served: Any = agent.Agent.__new__(agent.Agent)
    served._connection = SimpleNamespace(fileno=one.fileno, receive=lambda: [{"do": "quit"}])
    served._heard_s, served._files_due_s = -math.inf, math.inf
    served._processes = served._part = None
    served._do = came.append
    monkeypatch.setattr(os, "read", lambda *_: b"x")  # what has started it is there
    other.send(b"x")
    served._turn()
    assert came == [{"do": "quit"}] and served._heard_s > 0
    one.close()
    other.close()


def test_an_agent_and_its_nodes_may_open_as_many_files_as_the_machine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(agent, "_serve_driver", lambda *_: resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 512)
    ticket = Ticket(name="a", driver=("127.0.0.1", 1), key="", secret="", run_id="", plan="", bind="", nodes=(),
                    working_directory="/", pem="", emulates=False)  # fmt: skip
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        started = ForkedAgent(ticket, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    end_s = time.monotonic() + 10
    while not (how := started.lost()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    started.stop()
    assert how == "its agent has ended with 0"


def test_a_stranger_that_knows_a_name_keeps_no_agent_out(awaiting: tuple[AgentConnections, AgentHandle]) -> None:
    connections, handle = awaiting
    for sends in ([], [{"hello": {}}]):
        stranger = control.connect(("127.0.0.1", connections.port), "a", b"x" * 32, None, 5.0)
        for message in sends:
            stranger.send(message)
        for _ in range(5):
            connections.turn(0.01)
        assert handle.connection is None
    assert_admits(connections, handle)


def test_a_driver_without_descriptors_accepts_agents_later(
    awaiting: tuple[AgentConnections, AgentHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, handle = awaiting
    errors = iter([OSError(errno.EMFILE, ""), OSError(errno.ECONNABORTED, "")])
    accept = socket.socket.accept

    def failing(listener: socket.socket) -> Any:
        sock = accept(listener)
        if error := next(errors, None):
            sock[0].close()
            raise error
        return sock

    monkeypatch.setattr(socket.socket, "accept", failing)
    for _ in range(3):  # the first call was made before
        with suppress(OSError):
            control.connect(("127.0.0.1", connections.port), "b", b"x" * 32, None, 5.0)
    assert next(errors, None) is None
    assert_admits(connections, handle)


@pytest.mark.slow  # 10 s
@pytest.mark.usefixtures("agents")
def test_a_librarys_group_inside_a_data_centre_is_on_its_machine(tmp_path: Path) -> None:
    gloo = ("run.on=local", "paradigm={kind: hips, inside: gloo}", "training.rounds=3")
    deployed = fault_runs.run(tmp_path / "deployed", STEADY, *gloo, on="cluster")
    assert deployed.error is None and len(deployed.hashes()) == 1
    assert deployed.hashes() == fault_runs.run(tmp_path / "local", STEADY, *gloo, on="local").hashes()
    ends = [(event["source"], event["node"]) for event in deployed.events("transfer") if event["message"] == "gloo"]
    assert ends and all(one == other for one, other in map(sites, ends))


@pytest.mark.slow  # 4 s
@pytest.mark.usefixtures("agents")
def test_a_librarys_group_spans_machines(tmp_path: Path) -> None:
    gloo = ("run.on=local", "paradigm={kind: gloo}", "training.rounds=3")
    deployed = fault_runs.run(tmp_path / "deployed", STEADY, *gloo, on="cluster")
    assert deployed.error is None and len(deployed.hashes()) == 1
    assert deployed.hashes() == fault_runs.run(tmp_path / "local", STEADY, *gloo, on="local").hashes()
    ends = [(event["source"], event["node"]) for event in deployed.events("transfer") if event["message"] == "gloo"]
    assert {"east", "west", "hub"} == {one for one, other in map(sites, ends) if one != other}


def sites(ends: tuple[str, str]) -> list[str]:
    """The data centres of two nodes."""
    return [node.split("/")[0] for node in ends]
