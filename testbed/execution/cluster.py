"""Deployment: every node is a real process on a machine of its data centre, and messages cross real networks.

This process is the driver. It starts an agent on each machine (``testbed.cluster``) and does for all of them what the
host process of other back ends does: deadlines, faults, restarts, the wait graph, and the run directory.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cluster import links
from testbed.cluster.agent_process import AgentStarter, LoopbackAgents
from testbed.cluster.agents import AgentHandle, Agents
from testbed.cluster.files import remove_incomplete
from testbed.cluster.processes import AgentProcesses
from testbed.cluster.ray_agents import RayAgents
from testbed.errors import RunFailed
from testbed.execution.deployment import Ground
from testbed.execution.recovery import Attempts, attempt_until_done, timed
from testbed.execution.resume import checkpoint_files
from testbed.ids import data_center_of, link_name
from testbed.plan.model import Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.results.events import EventLog
from testbed.results.progress import Progress

MOST_PATHS = 32  # at most so many paths are measured; each takes half a second


def run_jobs(ground: Ground, starter: AgentStarter | None = None) -> list[BaseException | None]:
    """Run all nodes of the only job to their end. Raise the first cause if a node fails, and ``CapabilityError`` if a
    machine is missing.

    ``starter``: starts the agents; default: on the cluster whose address is in the Plan.
    """
    plan = ground.only.plan
    directory = ground.only.directory
    with driving(plan, directory, ground.only.report, starter) as driver:
        driver.stage("measuring the links")
        _measure(plan, driver, "before")
        driver.stage("starting nodes")
        run_attempts(plan, directory, driver.report, driver.epoch_ns, driver.agents)
        _measure(plan, driver, "after")
    return [None]


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of a run: its agents, the run's start on CLOCK_MONOTONIC, its progress, and its own event log."""

    agents: Agents
    epoch_ns: int
    report: Progress
    _log: EventLog

    def stage(self, name: str) -> None:
        self.report({"kind": "stage", "name": name})

    def record(self, kind: str, **fields: Any) -> None:
        """Write an event of the driver; also report it if it is a warning."""
        self._log.write(kind, (time.monotonic_ns() - self.epoch_ns) / 1e9, **fields)
        if kind == "warning":
            self.report({"kind": kind, "node": "network", **fields})

    def measured(self, source: AgentHandle, target: AgentHandle) -> dict[str, Any]:
        """Measure the path from one machine to another; return the result of ``links.measure``."""
        token = secrets.token_bytes(links.TOKEN_BYTES)
        port = self.agents.ask(target, "serve", target.placement.bind, token)
        to = target.placement.seen_from(source.placement.data_center), port
        found: dict[str, Any] = self.agents.ask(source, "measure", to, source.placement.bind, token)
        return found


@contextmanager
def driving(plan: Plan, directory: Path, report: Progress, starter: AgentStarter | None) -> Iterator[Driver]:
    """Start the agents of a run; at the end, stop them and convert times of events to this machine's clock."""
    assert plan.cluster is not None
    address = plan.cluster.address
    starter = starter or (LoopbackAgents() if address == LoopbackAgents.address else RayAgents(address))
    epoch_ns = time.monotonic_ns()
    report = timed(report, epoch_ns)
    report({"kind": "stage", "name": "starting agents"})
    log = EventLog(directory / "events", "network")
    with starter, Agents(plan, directory, starter, epoch_ns) as agents:
        try:
            yield Driver(agents, epoch_ns, report, log)
        finally:
            log.close()
            machines = agents.report()  # before ``stop``, which ends the agents
            agents.stop()
            agents.correct_events()
            report({"kind": "capabilities", "cluster": {"address": starter.address, "machines": machines}})


def run_attempts(plan: Plan, directory: Path, report: Progress, epoch_ns: int, agents: Agents) -> None:
    """Run all nodes to their end through agents, with the restarts of the plan; see ``attempt_until_done``."""
    numbers = itertools.count(1)

    def fleet(attempts: Attempts) -> Fleet:
        remove_incomplete(directory)
        files = checkpoint_files(plan, directory, report, with_states=False)
        resumed = files.resumed if files is not None else None
        if resumed is not None:
            attempts.clock.goes_on(resumed.round, resumed.members.trained_s, resumed.members.missing)
        path = resumed.path if resumed is not None else None

        def start(plan: Plan, launch: Launch, epoch_ns: int, wake: int) -> AgentProcesses:
            return AgentProcesses(agents, next(numbers), wake, path)

        launch = Launch(
            make_role=_elsewhere,
            event_directory=directory / "events",
            epoch_ns=epoch_ns,
            due=attempts.clock,
            on_fault=attempts.on_fault,
        )
        return Fleet(plan, launch, start)

    try:
        attempt_until_done(plan, directory, report, epoch_ns, fleet)
    finally:
        remove_incomplete(directory)


def _elsewhere(*_: Any) -> Any:
    raise AssertionError("roles are made by agents")


def _measure(plan: Plan, driver: Driver, when: str) -> None:
    """Measure the paths between data centres, one after the other, and record the results.

    A measurement that fails after training is recorded, and does not fail the run: a machine may have been lost.
    """
    for source, target in itertools.islice(_paths(plan, driver.agents), MOST_PATHS):
        here = source.placement.data_center
        there = target.placement.data_center
        try:
            found = driver.measured(source, target)
        except RunFailed as error:
            if when == "before":
                raise
            found = {"failed": str(error)}
        driver.record("path", path=link_name(here, there), when=when, **found)


def _paths(plan: Plan, agents: Agents) -> Iterator[tuple[AgentHandle, AgentHandle]]:
    """Yield pairs of machines to measure: the first ones of two data centres whose nodes push to each other.

    Without servers, yield all pairs of data centres. Lost machines are left out.
    """
    first = {agent.placement.data_center: agent for agent in reversed(list(agents)) if not agent.lost}
    pairs = {(node.data_center, data_center_of(parent)) for node in plan.nodes for parent in node.parents}
    wanted = {pair for one, other in pairs for pair in ((one, other), (other, one)) if one != other}
    for pair in itertools.permutations(first, 2) if not pairs else sorted(wanted):
        if pair[0] in first and pair[1] in first:
            yield first[pair[0]], first[pair[1]]
