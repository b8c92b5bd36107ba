"""Exact runs in the kernel that ``testbed exact build`` makes: equal files, the other worlds' bits, honest ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from filecmp import dircmp
from pathlib import Path

import psutil
import pytest

from emulation.exact import kernel
from testbed import api
from testbed.errors import NoProgress
from testbed.process_id import start_ticks
from testbed.results.events import read
from tests.for_each import for_each

pytestmark = [
    pytest.mark.slow,  # 20 to 60 s each
    pytest.mark.timeout(600),
    pytest.mark.skipif(kernel.find() is None, reason="the kernel is not built: testbed exact build"),
]
SHORT = ("--set", "training.rounds=4", "--set", "training.evaluate_every=2")
WORK = ("step", "encode", "decode", "optimizer")
PROGRAM = """
version: 1
name: program
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 10 ms}]
workload: {command: COMMAND}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "testbed.cli.main", "run", *arguments, "--on", "exact", "--out", "run"]


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, check=False)


def differences(compared: dircmp[str]) -> Iterator[str]:
    yield from (*compared.left_only, *compared.right_only)
    for name in compared.common_files:
        if Path(compared.left, name).read_bytes() != Path(compared.right, name).read_bytes():
            yield name
    for below in compared.subdirs.values():
        yield from differences(below)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of all runs here: it is part of the command's environment, and has a space in its name."""
    return tmp_path_factory.mktemp("exact runs")


@pytest.fixture(scope="module")
def first(folder: Path) -> Path:
    done = run_in(folder, "quickstart", *SHORT)
    assert done.returncode == 0, done.stderr
    return (folder / "run").rename(folder / "first")


def test_a_run_beside_a_busy_machine_leaves_the_same_files(folder: Path, first: Path) -> None:
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(4)]
    try:
        assert run_in(folder, "quickstart", *SHORT).returncode == 0
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert list(differences(dircmp(first, (folder / "run").rename(folder / "second")))) == []


SLOW_LINKS = """
version: 1
name: slow-links
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}]
  links: [{between: [a, b], rate: 300 kbit/s, delay: 5 ms}, {between: [a, c], rate: 1 Mbit/s, delay: 9 ms}]
training: {model: {kind: mlp, hidden: 8, layers: 1}, data: digits, batch: 16, rounds: 2}
device: {step_time: 50 ms}
"""


def test_slow_links_are_as_planned(tmp_path: Path) -> None:
    """An echo is within what a link sends at once, so it takes the delay alone, however slow the link is."""
    (tmp_path / "slow.yaml").write_text(SLOW_LINKS, encoding="utf-8")
    assert run_in(tmp_path, "slow.yaml").returncode == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert result["fidelity"]["status"] == "ok", result["fidelity"]["reasons"]


def test_its_parameters_are_those_of_the_virtual_world(first: Path, tmp_path: Path) -> None:
    result = json.loads((first / "result.json").read_text())
    changes = {"training.rounds": 4, "training.evaluate_every": 2}
    simulated = api.run(api.load("quickstart", set=changes), on="simulate", out=tmp_path / "run", progress=False)
    assert result["parameters_sha256"] == simulated.result["parameters_sha256"]
    assert result["fidelity"]["status"] == "ok"
    found = json.loads((first / "manifest.json").read_text())["capabilities"]
    assert found["kernel_build"]["version"] == kernel.VERSION


def test_a_measured_processor_takes_the_time_that_it_works(folder: Path) -> None:
    measured = ("device.pace=measured", "device.speed=0.25", "exact.cpu=measured", "codec=bisparse")
    settings = [part for each in measured for part in ("--set", each)]
    assert run_in(folder, "quickstart", *SHORT, *settings).returncode == 0
    (folder / "run").rename(folder / "measured")
    found = list(read(folder / "measured" / "events"))
    computed = {kind: [each for each in found if each["kind"] == "compute" and each["work"] == kind] for kind in WORK}
    assert all(computed.values())
    for kind, events in computed.items():
        real_s = [each["real_s"] * (4 if kind == "step" else 1) for each in events]
        assert [each["modelled_s"] for each in events] == pytest.approx(real_s, abs=5e-6)
    steps = {(each["node"], each["round"]): each for each in computed["step"]}
    assert all(each["real_s"] > 0 for each in steps.values())
    rounds = [each for each in found if each["kind"] == "round"]
    assert all(each["t"] - each["t0"] >= steps[each["node"], each["round"]]["modelled_s"] for each in rounds)


@for_each("victim", ["launcher", "kernel"])
def test_nothing_outlives_a_kill(folder: Path, victim: str) -> None:
    with (folder / "stderr").open("wb") as said:
        launcher = subprocess.Popen(command("quickstart"), cwd=folder, stdout=said, stderr=said)
    try:
        deadline_s = time.monotonic() + 60
        while not (found := kernels_of(launcher.pid)) or time.monotonic() < deadline_s - 55:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        os.kill(launcher.pid if victim == "launcher" else found[0], signal.SIGKILL)
        expected = -signal.SIGKILL if victim == "launcher" else 4
        assert launcher.wait(60) == expected, (folder / "stderr").read_text()
    finally:
        launcher.kill()
        launcher.wait()
    deadline_s = time.monotonic() + 60  # half a gigabyte is given back meanwhile
    while any(start_ticks(pid) is not None for pid in found):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    if victim == "kernel":
        assert "signal 9" in json.loads((folder / "run" / "status.json").read_text())["message"]


def kernels_of(launcher: int) -> list[int]:
    """The processes below ``launcher`` that are the kernel or run in it."""
    found = []
    for child in psutil.Process(launcher).children():
        with suppress(psutil.NoSuchProcess):  # others come and go
            if any("time-travel" in argument for argument in child.cmdline()):
                found.append(child.pid)
    return found


def test_a_program_that_spins_is_named(tmp_path: Path) -> None:
    spin = PROGRAM.replace("COMMAND", f"[{sys.executable}, -S, -c, 'while True: pass']")
    (tmp_path / "spin.yaml").write_text(spin)
    done = run_in(tmp_path, "spin.yaml")
    assert done.returncode == NoProgress.exit_code
    assert "virtual time has stood still" in done.stderr + done.stdout
