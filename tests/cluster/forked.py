"""Agents that are forked from the tests' own process: what they import is there already. Their clocks can be skewed."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from testbed.cluster.machines import Placement
from testbed.cluster.starting import LoopbackAgents, StartedAgent, Ticket
from testbed.execution import agent
from testbed.garbage import collect_after_fork


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


class ForkedAgent:
    """See ``StartedAgent``."""

    def __init__(self, ticket: Ticket, skew: Skew | None) -> None:
        self._log = tempfile.TemporaryFile("w+b")
        read, self._write = os.pipe()
        self._how = ""
        self.pid = os.fork()
        if self.pid == 0:
            self._become(read, skew)
        os.close(read)
        os.write(self._write, json.dumps(asdict(ticket)).encode() + b"\n")

    def _become(self, read: int, skew: Skew | None) -> None:
        status = 99
        try:
            collect_after_fork()
            os.setsid()
            os.dup2(read, 0)
            for descriptor in (1, 2):
                os.dup2(self._log.fileno(), descriptor)
            os.closerange(3, 1024)
            sys.stdin, sys.stderr = open(0, closefd=False), open(2, "w", closefd=False)
            if skew is not None:
                skew.begin()
            status = self._main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _main(self) -> int:
        return agent.main()

    def lost(self) -> str:
        if not self._how:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._how = f"its agent has ended with {os.waitstatus_to_exitcode(status)}" if pid else ""
        return self._how

    def output(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode()

    def stop(self) -> None:
        os.close(self._write)
        end_s = time.monotonic() + 5
        while not self.lost():
            if time.monotonic() > end_s:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        self._log.close()


class ForkedAgents(LoopbackAgents):
    """See ``AgentStarter``. ``skews``: of machines, by name. ``started``: all agents so far."""

    def __init__(self, skews: Mapping[str, Skew] | None = None) -> None:
        super().__init__()
        self._skews = skews or {}
        self.started: list[ForkedAgent] = []

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        self.started.append(ForkedAgent(ticket, self._skews.get(placement.name)))
        return self.started[-1]
