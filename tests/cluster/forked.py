"""Agents that are forked from the tests' own process: what they import is there already. Their clocks can be skewed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.cluster.agent_process import AgentProcess, LoopbackAgents, StartedAgent, Ticket
from testbed.cluster.machines import Placement
from testbed.execution import agent
from testbed.garbage import collect_after_fork
from testbed.processes.child import Child, fork


@dataclass(frozen=True)
class Skew:
    """How a machine's clock differs from the true one."""

    offset_s: float
    drift_ppm: float = 0.0

    def begin(self) -> None:
        """Let all clocks of this process be skewed."""
        true, start_ns = time.monotonic_ns, time.monotonic_ns()

        def skewed_ns() -> int:
            now_ns = true()
            return now_ns + round(self.offset_s * 1e9 + (now_ns - start_ns) * self.drift_ppm * 1e-6)

        time.monotonic_ns, time.monotonic = skewed_ns, lambda: skewed_ns() / 1e9
        agent.clock_of_machine = lambda: f"skewed by {self}"  # type: ignore[attr-defined]


class ForkedAgent(AgentProcess):
    """See ``StartedAgent``."""

    def __init__(self, ticket: Ticket, skew: Skew | None) -> None:
        self._skew = skew
        super().__init__(ticket)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _started(self, descriptor: int, variables: Mapping[str, str]) -> Child:
        return fork(lambda _: self._become(descriptor))

    def _become(self, descriptor: int) -> int:
        collect_after_fork()
        os.setsid()
        for standard in (1, 2):
            os.dup2(self._log.fileno(), standard)
        os.dup2(descriptor, 3)
        os.closerange(4, 1024)
        sys.stdout, sys.stderr = open(1, "w", 1, closefd=False), open(2, "w", 1, closefd=False)
        if self._skew is not None:
            self._skew.begin()
        return agent.main(3)


class ForkedAgents(LoopbackAgents):
    """See ``AgentStarter``. ``skews``: of machines, by name. ``started``: all agents so far."""

    def __init__(self, skews: Mapping[str, Skew] | None = None) -> None:
        super().__init__()
        self._skews = skews or {}
        self.started: list[ForkedAgent] = []

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        self.started.append(ForkedAgent(ticket, self._skews.get(placement.name)))
        return self.started[-1]
