"""Deployments on three machines that are processes with an address of their own on loopback."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.errors import NodeLost, WaitTimeout
from testbed.execution import cluster, host
from testbed.plan.build import build_plan
from testbed.plan.model import Plan, to_json
from testbed.results.events import STOPPED
from testbed.results.progress import Progress
from testbed.scenario.load import load
from tests.cluster.forked import ForkedAgents, Skew
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
    host.BACK_ENDS["cluster"] = lambda *run: cluster.run_with(agents, *run)
    try:
        outcome = host.attempt(plan, directory, report)
    finally:
        host.BACK_ENDS["cluster"] = before
    return Finished(plan, outcome, directory, read_events(directory))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Neither processes nor files of agents."""
    folder = Path(tempfile.gettempdir())
    before = psutil.Process().children(recursive=True), set(folder.glob("testbed-agent-*"))
    yield
    assert [child for child in psutil.Process().children(recursive=True) if child not in before[0]] == []
    assert set(folder.glob("testbed-agent-*")) == before[1]


@pytest.fixture(scope="module")
def simulated_hash(tmp_path_factory: pytest.TempPathFactory) -> str:
    (value,) = run_scenario(tmp_path_factory.mktemp("simulated") / "run", "simulate", *SHORT).hashes("worker")
    return value


def test_it_ends_with_the_bits_of_the_simulator(tmp_path: Path, simulated_hash: str) -> None:
    run = deploy(tmp_path / "run", *SHORT)
    assert run.outcome.status == "done", run.outcome.message
    for role in ("worker", "server", "global_server"):
        assert run.hashes(role) == {simulated_hash}
    assert {event["path"] for event in run.of_kind("path") if event["when"] == "before"} == {
        "frankfurt>virginia", "tokyo>virginia", "virginia>frankfurt", "virginia>tokyo",
    }  # fmt: skip


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ForkedAgents:
    """Let runs of ``tests.faults`` and of scripts that fail be deployed, too."""
    starter = ForkedAgents()

    def run(plan: Plan, directory: Path, report: Progress) -> None:
        cluster.run_with(starter, plan, directory, report)

    monkeypatch.setitem(host.BACK_ENDS, "cluster", run)
    monkeypatch.setitem(fault_runs.BACK_ENDS, "cluster", run)
    return starter


@pytest.mark.usefixtures("agents")
def test_a_killed_node_ends_the_run_and_is_named(tmp_path: Path) -> None:
    ended = fault_runs.run(tmp_path, STEADY, faults("kind: kill, node: east/server0, round: 2"), on="cluster")
    assert str(ended.error) == "east/server0 was killed by signal 9, SIGKILL (a fault of the scenario)"


@pytest.mark.usefixtures("agents")
def test_a_restart_from_a_checkpoint_whose_parts_are_on_several_machines(tmp_path: Path) -> None:
    calm = fault_runs.run(tmp_path / "calm", STEADY)
    kill = faults("kind: kill, node: hub/global0, round: 7")
    ended = fault_runs.run(tmp_path / "hit", STEADY, "checkpoint.every=3", RESTART, kill, on="cluster")
    assert ended.error is None and ended.hashes() == calm.hashes()
    assert [event["begins_t"] > event["t"] for event in ended.events("restart")] == [True]
    (resumed,) = [line["name"] for line in ended.told if line["kind"] == "stage" and "resum" in line["name"]]
    assert resumed == "resuming after round 5"
    assert sorted(path.name for path in (tmp_path / "hit" / "checkpoints").iterdir()) == ["ckpt-000009", "ckpt-000012"]


def test_a_lost_machine_is_replaced_at_the_restart(tmp_path: Path, agents: ForkedAgents) -> None:
    calm = fault_runs.run(tmp_path / "calm", STEADY)
    plan = fault_runs.plan_of(STEADY, "checkpoint.every=3", RESTART, on="cluster")

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 6 and len(agents.started) == 3:
            os.kill(agents.started[1].pid, signal.SIGKILL)

    cluster.run_with(agents, plan, tmp_path / "hit", report)
    assert len(agents.started) == 4
    events = read_events(tmp_path / "hit")
    assert {event["parameters_sha256"] for event in events if event.get("parameters_sha256")} == calm.hashes()
    (restart,) = [event for event in events if event["kind"] == "restart"]
    assert restart["message"].startswith("east/") and "machine east/machine0 (127.0.0.3) is lost" in restart["message"]


def test_without_a_restart_a_lost_machine_is_named(tmp_path: Path, agents: ForkedAgents) -> None:
    plan = fault_runs.plan_of(STEADY, on="cluster")

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 2:
            with suppress(ProcessLookupError):
                os.kill(agents.started[1].pid, signal.SIGKILL)

    with pytest.raises(NodeLost, match=r"^east/\w+: its machine east/machine0 \(127.0.0.3\) is lost: its agent has"):
        cluster.run_with(agents, plan, tmp_path, report)


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize(("kind", "place"), [("exit with a text", "end"), ("segmentation fault", "connected")])
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
    assert {node.name for node in run.plan.nodes} == stopped


@pytest.mark.usefixtures("agents")
def test_a_run_that_stands_still_ends_with_the_waits_of_all_machines(tmp_path: Path) -> None:
    deadlines = (
        "timeouts={heartbeat: 0.2 s, suspect: 0.5 s, dead_after: 1 s, tcp_user_timeout: 1 s, step_deadline: 2 s}"
    )
    ended = fault_runs.run(tmp_path, "device.step_time=1 min", deadlines, on="cluster")
    assert isinstance(ended.error, WaitTimeout)
    graph = "\n".join(ended.error.__notes__)
    for node in ("east/server0", "west/server0", "hub/global0"):
        assert re.search(f"{node} waits for .* since t = ", graph), graph
    assert "west/worker0 waits for nothing: it computes, or does not run" in graph


def least_transfer_s(run: Finished, source: str, target: str) -> float:
    """The shortest transfer between two data centres."""
    return min(
        event["t"] - event["t0"] for event in run.of_kind("transfer")
        if (event["source"].split("/")[0], event["target"].split("/")[0]) == (source, target)
    )  # fmt: skip


def test_events_are_by_one_clock_though_each_machine_has_its_own(tmp_path: Path, simulated_hash: str) -> None:
    skews = {"tokyo/machine0": Skew(0.05), "frankfurt/machine0": Skew(-0.05, drift_ppm=500)}
    told: list[dict[str, Any]] = []
    run = deploy(tmp_path / "run", *SHORT, starter=ForkedAgents(skews), report=told.append)
    assert run.hashes("worker") == {simulated_hash}
    for site in ("tokyo", "frankfurt"):
        there, back = least_transfer_s(run, "virginia", site), least_transfer_s(run, site, "virginia")
        assert -1e-3 < there < 2e-2 and -1e-3 < back < 2e-2 and abs(there - back) < 2e-2
    (about,) = [line["cluster"]["machines"] for line in told if line["kind"] == "capabilities"]
    clocks = {each["name"]: each["clock"] for each in about}
    assert clocks["virginia/machine0"]["error_s"] == 0, "that machine has the driver's clock"
    assert abs(clocks["tokyo/machine0"]["offset_s"] - 0.05) < clocks["tokyo/machine0"]["error_s"] < 1e-2
    assert abs(clocks["frankfurt/machine0"]["drift_ppm"] - 500) < 400
