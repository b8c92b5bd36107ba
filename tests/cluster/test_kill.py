"""kill -9 of the driver or of an agent, at any moment, leaves neither processes nor files."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.cluster import directories
from testbed.execution import cluster
from tests.cluster.forked import ForkedAgents
from tests.faults import runs

GONE_WITHIN_S = 5.0
AGENTS = "testbed-agent-*"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    folder = Path(tempfile.gettempdir())
    before = psutil.pids(), set(folder.glob(AGENTS))
    yield
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (
        left := [*of_this_session(set(psutil.pids()) - set(before[0])), *(set(folder.glob(AGENTS)) - before[1])]
    ) and (time.monotonic() < deadline_s):
        time.sleep(0.02)
    assert left == []


def of_this_session(pids: set[int]) -> list[str]:
    """Processes that were forked from the tests' own: they have its command line."""
    mine, found = psutil.Process().cmdline(), []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.cmdline() == mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{pid} of {process.ppid()}")
        except psutil.NoSuchProcess:
            continue
    return found


def start_driver(directory: Path) -> tuple[int, Iterator[dict[str, Any]]]:
    """Fork a driver; return it, and what it tells, the numbers of its agents among it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            starter = ForkedAgents()

            def report(line: dict[str, Any]) -> None:
                os.write(
                    write, json.dumps(line | {"agents": [agent.pid for agent in starter.started]}).encode() + b"\n"
                )

            plan = runs.plan_of("device.step_time=20 ms", "training.rounds=300", "checkpoint.every=5", on="cluster")
            cluster.run_with(starter, plan, directory, report)
        finally:
            os._exit(0)
    os.close(write)
    return pid, map(json.loads, open(read))


def until(told: Iterator[dict[str, Any]], what: str) -> dict[str, Any]:
    return next(line for line in told if what in (line["kind"], line.get("name")))


@pytest.mark.parametrize("moment", ["starting agents", "starting nodes", "train", "round"])
def test_of_the_driver(tmp_path: Path, moment: str) -> None:
    driver, told = start_driver(tmp_path)
    until(told, moment)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)


@pytest.mark.slow  # 60 s
@pytest.mark.parametrize("after_s", [random.Random(seed).uniform(0, 3) for seed in range(20)])
def test_of_the_driver_at_many_moments(tmp_path: Path, after_s: float) -> None:
    driver, _ = start_driver(tmp_path)
    time.sleep(after_s)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)


@pytest.mark.parametrize("moment", ["starting nodes", "round"])
def test_of_an_agent(tmp_path: Path, moment: str) -> None:
    """The driver then ends the run."""
    driver, told = start_driver(tmp_path)
    os.kill(until(told, moment)["agents"][-1], signal.SIGKILL)
    for _ in told:
        pass
    os.waitpid(driver, 0)


def test_a_directory_whose_agent_was_killed_with_its_parent_goes_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    left, held = directories.new_directory(), directories.new_directory()
    for number in range(3, 64):  # the lock of the first, as its process would by its end
        if os.path.realpath(f"/proc/self/fd/{number}") == str(left):
            os.close(number)
    monkeypatch.setattr(directories, "_NEW_S", -1.0)
    third = directories.new_directory()
    assert not left.exists() and held.exists() and third.exists()
    directories.remove_directories(os.getpid())
