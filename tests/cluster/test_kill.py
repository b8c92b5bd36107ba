"""kill -9 of the driver or of an agent, at any moment, leaves neither processes nor files."""

from __future__ import annotations

import json
import os
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
from tests.cluster.sweeping import wait_until
from tests.faults import runs

pytestmark = pytest.mark.usefixtures("directory_of_agents")
GONE_WITHIN_S = 240.0


class Family:
    """A driver and all that it has started, now."""

    def __init__(self, driver: int) -> None:
        self._driver = psutil.Process(driver)
        self._started = self._driver.children(recursive=True)

    def kill(self, pid: int) -> None:
        """kill -9 of one of them."""
        os.kill(pid, signal.SIGKILL)

    def assert_gone(self) -> None:
        """All have ended, the driver included, and the directories of the agents are gone."""
        os.waitpid(self._driver.pid, 0)
        _, alive = psutil.wait_procs(self._started, GONE_WITHIN_S)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
        directories_ = [Path(tempfile.gettempdir()).glob(f"testbed-agent-{each.pid}-*") for each in self._started]
        assert [path for found in directories_ for path in found] == []


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
            cluster.run(plan, directory, report, starter)
        except Exception as error:
            report({"kind": "failed", "message": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(0)
    os.close(write)
    return pid, map(json.loads, open(read))


def until(told: Iterator[dict[str, Any]], what: str) -> dict[str, Any]:
    for line in told:
        if what in (line["kind"], line.get("name")):
            return line
        assert line["kind"] != "failed", line["message"]
    raise AssertionError(f"the driver has ended before {what!r}")


@pytest.mark.parametrize(
    "moment",
    ["starting agents", "round", *(pytest.param(each, marks=pytest.mark.slow) for each in ("starting nodes", "train"))],
)  # 3 s each
def test_of_the_driver(tmp_path: Path, moment: str) -> None:
    driver, told = start_driver(tmp_path)
    until(told, moment)
    family = Family(driver)
    family.kill(driver)
    family.assert_gone()


@pytest.mark.parametrize("moment", ["round", pytest.param("starting nodes", marks=pytest.mark.slow)])  # 3 s
def test_of_an_agent(tmp_path: Path, moment: str) -> None:
    """The driver then ends the run."""
    driver, told = start_driver(tmp_path)
    agents = until(told, moment)["agents"]
    family = Family(driver)
    family.kill(agents[-1])
    for _ in told:
        pass
    family.assert_gone()


def test_a_directory_is_removed_when_its_agent_and_the_last_of_its_nodes_have_been_killed() -> None:
    read, write = os.pipe()
    agent = os.fork()
    if agent == 0:
        directory = directories.new_directory("testbed-agent")
        node = os.fork()
        if node:
            os.write(write, json.dumps([str(directory), node]).encode())
        signal.pause()
    name, node = json.loads(os.read(read, 1000))
    try:
        os.kill(agent, signal.SIGKILL)
        os.waitpid(agent, 0)
        time.sleep(0.2)
        assert Path(name).exists(), "a node may still write"
    finally:
        os.kill(node, signal.SIGKILL)
    wait_until(lambda: not Path(name).exists(), GONE_WITHIN_S)
