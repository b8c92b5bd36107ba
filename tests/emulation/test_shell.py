"""`testbed shell`: looks, changes, and lets unmodified programs see the configured links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulation.inside import ROOT

pytestmark = pytest.mark.emulation

SCENARIO = """
version: 1
name: shell
seed: 1
topology:
  data_centers:
    - {name: a, central: true, workers: 1}
    - {name: b, workers: 1}
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 20 ms}]
training: {model: cnn, data: digits, rounds: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    return file


def shell(scenario: Path, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "testbed.cli.main", "shell", str(scenario), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        argv,
        input=script,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=scenario.parent,
        env=environment,
    )


def medians_ms(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"round trip [\d.]+ / ([\d.]+) / ", output)]


@pytest.mark.wallclock  # 15 s
def test_a_script_looks_and_changes(scenario: Path) -> None:
    done = shell(
        scenario,
        script="""
        nodes
        pingall
        ping a/worker0 b/worker0
        delay a<>b 50 ms
        ping a/worker0 b/worker0
        rate a>b 4 Mbit/s
        iperf a/worker0 b/worker0 10
        links
        down b>a
        ping a/worker0 b/worker0 2
        up b>a
        ping a/worker0 b/worker0 2
        meters 0.5
        exit
        """,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "30 of 30 pairs answered" in done.stdout
    first, second, third = medians_ms(done.stdout)
    assert (
        first == pytest.approx(40, abs=3) and second == pytest.approx(100, abs=4) and third == pytest.approx(100, abs=4)
    )
    goodput = re.search(r"([\d.]+) Mbit/s of payload", done.stdout)
    assert goodput and float(goodput[1]) == pytest.approx(
        4 * 1448 / 1514, rel=0.06
    )  # long enough for a loss to be repaired
    assert "none of 2 answered" in done.stdout
    assert re.search(r"a>b +up +4 Mbit/s +50.00 ms", done.stdout)
    assert "queue kB" in done.stdout


@pytest.mark.slow  # 4 s
def test_a_scripts_mistakes_are_named_and_counted(scenario: Path) -> None:
    done = shell(scenario, script="rate a>c 5 Mbit/s\nrate a>b 5\nping x a/worker0\nfrobnicate\n")
    assert done.returncode == 1
    for words in ("no link 'a>c'; links: ", "unit", "no node 'x'; nodes: a/worker0", "unknown command 'frobnicate'"):
        assert words in done.stdout, done.stdout


@pytest.mark.slow  # 6 s
def test_one_command_in_a_node(scenario: Path) -> None:
    done = shell(scenario, "--in", "b/worker0", "--", "sh", "-c", "hostname -I; cat; exit 7", script="passed on")
    assert done.returncode == 7
    assert done.stdout.split() == ["10.2.0.1", "passed", "on"]
    assert "\nfidelity: " in "\n" + done.stderr and [*scenario.parent.iterdir()] == [scenario]


@pytest.mark.slow  # 9 s
def test_a_recorded_shell_leaves_a_run_directory(scenario: Path) -> None:
    done = shell(
        scenario, "--record", "kept", "--in", "a/worker0", "--", "ping", "-q", "-c", "3", "-i", "0.2", "worker0.b"
    )
    assert done.returncode == 0, done.stderr
    kept = scenario.parent / "kept"
    result, fidelity = (json.loads((kept / f"{name}.json").read_text()) for name in ("result", "fidelity"))
    assert result["status"] == "done" and "run directory: kept" in done.stderr
    assert result["wan_payload_bytes"]["a"] == {"up": 3 * 98, "down": 3 * 98}, "three echoes and their answers"
    assert fidelity["measured_before_training"] and len(fidelity["links_while_running"]) == 2
    assert (kept / "figure.png").is_file() and (kept / "tables" / "links.parquet").is_file()
