"""Deployments over real raylets, each a machine of its own in namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.raylets import Machine, Raylets, needs_raylets, raylets
from tests.end_to_end.runs import QUICKSTART, run_scenario

SITES = ("virginia", "frankfurt", "tokyo")
SHORT = ("training.rounds=6", "training.evaluate_every=5")


@needs_raylets
@pytest.mark.slow  # 40 s
def test_the_quickstart_over_three_machines_ends_with_the_bits_of_the_simulator(tmp_path: Path) -> None:
    (simulated,) = run_scenario(tmp_path / "simulated", "simulate", *SHORT).hashes("worker")
    run = tmp_path / "deployed"
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "run",
        str(QUICKSTART),
        "--on",
        "cluster",
        "--out",
        str(run),
        "--quiet",
        *(word for setting in SHORT for word in ("--set", setting)),
    ]
    with raylets(workers=3, labels=[f"dc={name}" for name in SITES]) as cluster:
        output = cluster.head.run([*command, "--set", f"cluster.address={cluster.address}"], 120)
        assert "done" in output
        assert [machine.disk() for machine in cluster.workers] == [set()] * 3, "an agent has left files"
    result = json.loads((run / "result.json").read_text())
    assert result["parameters_sha256"] == simulated
    machines = json.loads((run / "manifest.json").read_text())["capabilities"]["cluster"]["machines"]
    assert [each["address"] for each in machines] == [machine.address for machine in cluster.workers]
    assert {each["hostname"] for each in machines} == {"machine1", "machine2", "machine3"}


VICTIMS = {"agent": "testbed.execution.agent", "driver": "cli.main run", "raylet": "raylet/raylet "}


def start(cluster: Raylets, out: Path, *settings: str) -> subprocess.Popen[str]:
    """Start a deployment of the quickstart, and return when it has trained for some rounds."""
    words = [word for setting in (*settings, f"cluster.address={cluster.address}") for word in ("--set", setting)]
    command = [sys.executable, "-m", "testbed.cli.main", "run", str(QUICKSTART), "--on", "cluster", "--out", str(out)]
    run = cluster.driver([*command, "--quiet", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline_s = time.monotonic() + 150
    while not any((out / "events").glob("tokyo.worker0.*")):
        assert run.poll() is None, run.stdout and run.stdout.read()
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    time.sleep(3)
    return run


def agents_on(machine: Machine) -> list[str]:
    return [command for command in machine.processes().values() if "testbed.execution.agent" in command]


def await_nothing_left(machines: list[Machine]) -> None:
    """Agents, their nodes and their directories are gone from machines that live."""
    deadline_s = time.monotonic() + 30
    while any(agents_on(machine) or machine.disk() for machine in machines):
        assert time.monotonic() < deadline_s, [(agents_on(machine), machine.disk()) for machine in machines]
        time.sleep(0.2)


@needs_raylets
@pytest.mark.slow  # 110 s
def test_a_machine_that_loses_power_is_replaced_by_another_of_its_data_centre(tmp_path: Path) -> None:
    job = (
        "training.rounds=60",
        "training.evaluate_every=60",
        "training.target_accuracy=null",
        "checkpoint.every=10",
        "recovery={on_failure: restart}",
        "device.step_time=100 ms",
    )
    (simulated,) = run_scenario(tmp_path / "simulated", "simulate", *job).hashes("worker")
    with raylets(workers=4, labels=[f"dc={name}" for name in (*SITES, "tokyo")]) as cluster:
        run = start(cluster, tmp_path / "deployed", *job)
        cluster.workers[2].kill()
        output, _ = run.communicate(timeout=240)
        assert run.returncode == 0, output
        await_nothing_left([machine for machine in cluster.workers if machine.alive()])
    result = json.loads((tmp_path / "deployed/result.json").read_text())
    assert result["parameters_sha256"] == simulated
    machines = json.loads((tmp_path / "deployed/manifest.json").read_text())["capabilities"]["cluster"]["machines"]
    assert [each["address"] for each in machines if each["data_center"] == "tokyo"] == ["10.77.0.13", "10.77.0.14"]


@needs_raylets
@pytest.mark.slow  # 120 s
def test_kill_9_of_raylets_agents_and_drivers_leaves_nothing_on_any_machine(tmp_path: Path) -> None:
    with raylets(workers=3, labels=[f"dc={name}" for name in SITES]) as cluster:
        for number, (kind, process) in enumerate(VICTIMS.items()):
            run = start(cluster, tmp_path / kind, "training.rounds=2000", "training.target_accuracy=null")
            machine = cluster.head if kind == "driver" else cluster.workers[number]
            pids = [pid for pid, command in machine.processes().items() if process in command]
            os.kill(min(pids), signal.SIGKILL)  # the agent itself, and not what it has forked
            output, _ = run.communicate(timeout=120)
            assert run.returncode != 0
            if kind != "driver":
                assert f"its machine {SITES[number]}/machine0" in output, output
            await_nothing_left(cluster.workers)
