"""Deployments on three machines that are processes with an address of their own on loopback."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import psutil
import pytest

from testbed.errors import WaitTimeout
from testbed.execution import cluster, host
from testbed.execution.deployment import alone
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.results import tables
from testbed.results.fidelity import assess
from testbed.scenario.load import load
from tests.cluster.forked import ForkedAgents, Skew
from tests.end_to_end.runs import QUICKSTART, Finished, read_events, run_scenario
from tests.faults import runs as fault_runs
from tests.faults.runs import RESTART, faults

STEADY = "device.step_time=20 ms"
SHORT = ("training.rounds=4", "training.evaluate_every=4")


def deploy(
    directory: Path,
    *overrides: str,
    starter: ForkedAgents | None = None,
    report: Any = lambda line: None,
    scenario: Path = QUICKSTART,
) -> Finished:
    """Run a scenario on forked agents to its end."""
    plan = build_plan(load(scenario, ("cluster.address=loopback", *overrides)), "cluster")
    directory.mkdir(parents=True)
    (directory / "plan.json").write_bytes(to_json(plan))
    agents = starter or ForkedAgents()
    with patch.object(cluster, "run_jobs", partial(cluster.run_jobs, starter=agents)):
        outcome = host.attempt(plan, directory, report)
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
        "frankfurt>virginia",
        "tokyo>virginia",
        "virginia>frankfurt",
        "virginia>tokyo",
    }
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
        assert 0 < row["min_rtt_s"] <= row["rtt_s"] and row["packets"] > 0 and 0 <= row["loss"] < 0.5
        assert (row["rate_bps"] is None) == (row["when"] == "during")
    capabilities["cluster"]["machines"][2]["clock"]["error_s"] = 0.003
    (reason,) = set(assess(frames, plan, capabilities)["reasons"]) - set(report["reasons"])
    assert reason.startswith("tokyo/machine0: its clock is known only to 3.0 ms")
    capabilities["cluster"]["machines"][2]["clock"]["error_s"] = 0.0005
    assert assess(frames, plan, capabilities)["reasons"] == report["reasons"]


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
    assert sorted(path.name for path in (tmp_path / "hit" / "checkpoints").iterdir()) == ["ckpt-000006", "ckpt-000009"]


@pytest.mark.slow  # 4 s
def test_a_lost_machine_is_replaced_at_the_restart(tmp_path: Path, agents: ForkedAgents, calm: set[str]) -> None:
    plan = fault_runs.plan_of(STEADY, "checkpoint.every=3", RESTART, on="cluster")

    def report(line: dict[str, Any]) -> None:
        if line["kind"] == "round" and line["round"] == 6 and len(agents.started) == 3:
            with suppress(ProcessLookupError):  # each of six workers says so
                os.kill(agents.started[1].pid, signal.SIGKILL)

    cluster.run_jobs(alone(plan, tmp_path / "hit", report), starter=agents)
    assert len(agents.started) == 4
    events = read_events(tmp_path / "hit")
    assert {event["parameters_sha256"] for event in events if event.get("parameters_sha256")} == calm
    (restart,) = [event for event in events if event["kind"] == "restart"]
    assert restart["message"].startswith("east/") and "machine east/machine0 (127.0.0.3) is lost" in restart["message"]


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


@pytest.mark.slow  # 6 s
def test_events_of_machines_whose_clocks_are_apart_are_told_by_one(tmp_path: Path) -> None:
    """The shortest transfers in both directions take about as long, which by the clocks there would be 50 ms apart."""
    told: list[dict[str, Any]] = []
    starter = ForkedAgents({"tokyo/machine0": Skew(0.05, 300.0), "frankfurt/machine0": Skew(-0.05)})
    run = deploy(tmp_path / "run", *SHORT, starter=starter, report=told.append)
    assert run.outcome.status == "done", run.outcome.message
    clocks = {each["name"]: each["clock"] for each in told[-1]["cluster"]["machines"]}
    for name, offset_s in {"tokyo/machine0": 0.05, "frankfurt/machine0": -0.05, "virginia/machine0": 0.0}.items():
        assert abs(clocks[name]["offset_s"] - offset_s) <= clocks[name]["error_s"] + 0.002
    shortest: dict[tuple[str, str], float] = {}
    for event in run.of_kind("transfer"):
        pair = event["source"].partition("/")[0], event["target"].partition("/")[0]
        shortest[pair] = min(shortest.get(pair, 1e9), event["t"] - event["t0"])
    for pair in (("tokyo", "virginia"), ("frankfurt", "virginia")):
        assert abs(shortest[pair] - shortest[pair[1], pair[0]]) < 0.02
