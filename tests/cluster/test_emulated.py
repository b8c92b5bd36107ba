"""Runs emulated on several machines: network namespaces of this one, whose agents are forked in a sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.results.events import read
from tests.cluster.raylets import Machine, needs_raylets, raylets
from tests.emulation.inside import WarmSandbox
from tests.end_to_end.runs import QUICKSTART, run_scenario

pytestmark = pytest.mark.emulation
SHORT = [
    "training.model={kind: mlp, hidden: 8}", "training.rounds=3", "training.evaluate_every=2",
    "training.target_accuracy=null",
]  # fmt: skip
LONG = [*SHORT, "training.rounds=2000", "training.evaluate_every=1000"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WarmSandbox]:
    made = WarmSandbox("tests.cluster.emulated_cases")
    yield made
    made.close()


def events(directory: Path, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in read(directory / "events") if event["kind"] in kinds]


def warnings(result: dict[str, Any]) -> str:
    return "\n".join(line["message"] for line in result["told"] if line["kind"] == "warning")


@pytest.mark.slow  # 21 s
def test_a_run_on_two_machines_has_the_plans_network_and_the_simulators_bits(
    tmp_path: Path, sandbox: WarmSandbox
) -> None:
    (simulated,) = run_scenario(tmp_path / "simulated", "simulate", *SHORT).hashes("worker")
    result = sandbox.run("ran", directory=str(tmp_path), overrides=SHORT)
    assert result["error"] == "" and result["left"] == []
    assert {event["parameters_sha256"] for event in events(tmp_path, "final") if event["role"] == "worker"} == {
        simulated
    }
    measured = events(tmp_path, "measured")
    assert len([event for event in measured if event["what"] == "rtt"]) == 15  # six links, six paths, three LANs
    assert len([event for event in measured if event["what"] == "rate"]) >= 3
    assert [event for event in measured if not event["ok"]] == []
    assert {event["path"] for event in events(tmp_path, "path")} == {"machine0>machine1", "machine1>machine0"}
    sampled = {(event["link"], event["node"]) for event in events(tmp_path, "link")}
    assert len(sampled) == 6 == len({link for link, _ in sampled}), "each link is sampled on one machine"
    assert {event["node"] for event in events(tmp_path, "replay")} == {
        "network-replay/machine0", "network-replay/machine1",
    }  # fmt: skip


@pytest.mark.slow  # 10 s
def test_where_the_underlay_has_an_ordinary_mtu_the_emulated_one_is_smaller_and_the_run_says_so(
    tmp_path: Path, sandbox: WarmSandbox
) -> None:
    result = sandbox.run("ran", directory=str(tmp_path), overrides=SHORT, mtu_bytes=1500)
    assert result["error"] == ""
    assert "an MTU of 1450 instead of 1500" in warnings(result)
    assert [event for event in events(tmp_path, "measured") if not event["ok"]] == []
    assert "has lost" not in warnings(result)


@pytest.mark.slow  # 5 s
def test_an_underlay_that_is_too_slow_refuses_the_run(tmp_path: Path, sandbox: WarmSandbox) -> None:
    limit = "tbf rate 15mbit burst 20k limit 100k"
    result = sandbox.run("ran", directory=str(tmp_path), overrides=SHORT, limit=limit)
    assert "NetworkMismatch: the machines' network cannot carry the emulated one" in result["error"]
    assert "link virginia>tokyo: needs" in result["error"] and "from machine0 to machine1 there are" in result["error"]
    assert "link tokyo>virginia" not in result["error"], "the other direction is fast"
    assert events(tmp_path, "measured", "start") == [] and result["left"] == []


@pytest.mark.slow  # 12 s
@pytest.mark.parametrize("stage", ["bringing the network up", "round"])
def test_kill_9_of_an_agent_ends_the_run_and_leaves_nothing(tmp_path: Path, sandbox: WarmSandbox, stage: str) -> None:
    result = sandbox.run("ran", directory=str(tmp_path), overrides=LONG, kill=stage)
    assert "NodeLost" in result["error"] and "its machine machine0" in result["error"]
    assert result["left"] == []


@pytest.mark.slow  # 12 s
def test_a_link_between_machines_loses_packets_and_its_counters_say_so(tmp_path: Path, sandbox: WarmSandbox) -> None:
    lossy = [*SHORT, "training.rounds=20", "training.evaluate_every=10", "links[*].loss=2 %"]
    result = sandbox.run("ran", directory=str(tmp_path), overrides=lossy)
    assert result["error"] == "" and "has lost" not in warnings(result)
    dropped = {event["link"]: event["dropped_packets"] for event in events(tmp_path, "link")}
    assert dropped["frankfurt>virginia"] > 0 and dropped["virginia>tokyo"] > 0


@pytest.mark.wallclock  # 15 s
def test_an_outage_is_at_both_ends_at_one_time(tmp_path: Path, sandbox: WarmSandbox) -> None:
    outage = 'faults=[{kind: down, link: "virginia<>tokyo", at: 1 s, for: 1 s}]'
    result = sandbox.run("ran", directory=str(tmp_path), overrides=[*SHORT, "training.rounds=8", outage])
    assert result["error"] == ""
    found = [event for event in events(tmp_path, "replay") if event["what"] == "state" and event["value"] == 0]
    assert {(event["link"], event["node"]) for event in found} == {
        (link, f"network-replay/machine{number}")
        for link in ("virginia>tokyo", "tokyo>virginia") for number in range(2)
    }  # fmt: skip
    assert max(event["t"] for event in found) - min(event["t"] for event in found) < 0.05


@pytest.mark.slow  # 12 s
def test_background_traffic_crosses_machines(tmp_path: Path, sandbox: WarmSandbox) -> None:
    constant, tcp = "kind: constant, from: tokyo, to: virginia, rate: 4 Mbit/s", "kind: tcp, from: virginia, to: tokyo"
    job = [*SHORT, "training.rounds=8", f"background=[{{{constant}}}, {{{tcp}}}]"]
    result = sandbox.run("ran", directory=str(tmp_path), overrides=job)
    assert result["error"] == ""
    sent, received = ({}, {})
    for event in events(tmp_path, "background"):
        at = event["number"], event["node"].removeprefix("network-background/")
        sent[at], received[at] = event["sent_bytes"], event["received_bytes"]
    assert min(sent[0, "machine1"], received[0, "machine0"]) > 200_000 and sent[0, "machine0"] == 0
    assert min(sent[1, "machine0"], received[1, "machine1"]) > 200_000 and received[1, "machine0"] == 0


@pytest.mark.slow  # 20 s
def test_a_killed_node_is_restarted_in_the_same_network(tmp_path: Path, sandbox: WarmSandbox) -> None:
    (simulated,) = run_scenario(tmp_path / "simulated", "simulate", *SHORT, "training.rounds=9").hashes("worker")
    job = [*SHORT, "training.rounds=9", "checkpoint.every=2", "recovery={on_failure: restart, delay: 100 ms}",
           "faults=[{kind: kill, node: tokyo/worker0, round: 5}]"]  # fmt: skip
    result = sandbox.run("ran", directory=str(tmp_path), overrides=job)
    assert result["error"] == "" and len(events(tmp_path, "restart")) == 1
    assert {event["parameters_sha256"] for event in events(tmp_path, "final") if event["role"] == "worker"} == {
        simulated
    }


def emulators_on(machine: Machine) -> list[str]:
    """Processes of a run, and tunnels, that are on a machine."""
    links = machine.run(["ip", "-o", "-d", "link"]).splitlines()
    running = [command for command in machine.processes().values() if "testbed.execution.agent" in command]
    return [*running, *(link for link in links if "vxlan" in link), *machine.disk()]


@needs_raylets
@pytest.mark.slow  # 60 s
def test_by_its_command_on_a_ray_cluster_and_kill_9_of_the_command_leaves_nothing(tmp_path: Path) -> None:
    with raylets(workers=2, resources='{"emulate": 1}') as cluster:
        command = [sys.executable, "-m", "testbed.cli.main", "run", str(QUICKSTART), "--on", "emulate", "--quiet",
                   "--cluster", cluster.address]  # fmt: skip
        settings = [word for setting in SHORT for word in ("--set", setting)]
        cluster.head.run([*command, "--out", str(tmp_path / "whole"), *settings], 150)
        assert [emulators_on(machine) for machine in cluster.workers] == [[], []]
        result = json.loads((tmp_path / "whole/manifest.json").read_text())["capabilities"]["cluster"]["machines"]
        assert [each["data_center"] for each in result] == ["virginia", "frankfurt, tokyo"]
        assert [each["emulation"]["vxlan"] for each in result] == [True, True]
        settings = [word for setting in LONG for word in ("--set", setting)]
        run = cluster.driver([*command, "--out", str(tmp_path / "killed"), *settings], stdout=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 150
        while not any((tmp_path / "killed/events").glob("tokyo.worker0.*")):
            assert run.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.1)
        for pid, words in cluster.head.processes().items():
            if "cli.main run" in words:
                os.kill(pid, signal.SIGKILL)
        run.wait(240)
        while any(map(emulators_on, cluster.workers)):
            assert time.monotonic() < deadline_s, [emulators_on(machine) for machine in cluster.workers]
            time.sleep(0.2)
