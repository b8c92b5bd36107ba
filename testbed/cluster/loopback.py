"""Agents as processes of this machine, each with an address of its own on loopback: a deployment without a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Self

from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement, cluster_of
from testbed.cluster.starting import StartedAgent, Ticket, line_of
from testbed.environment import host_environment
from testbed.plan.model import Plan

_NOTHING: Mapping[str, str] = {}
_AGENT = "testbed.execution.agent"
_FIRST = 2  # 127.0.0.2; others use 127.0.0.1
_STOP_S = 5.0
_MOST_OUTPUT_BYTES = 1 << 20


class AgentProcess:
    """An agent that is a child of this process. ``variables``: of its environment, beside those of host processes.

    One that emulates is in a sandbox, and keeps a descriptor of the machine's own network namespace.
    """

    def __init__(self, ticket: Ticket, variables: Mapping[str, str] = _NOTHING) -> None:
        self._log = tempfile.TemporaryFile("w+b")
        with open("/proc/self/ns/net", "rb") as outside:
            self.process = subprocess.Popen(
                _command(outside.fileno() if ticket.emulates else None), stdin=subprocess.PIPE, stdout=self._log,
                stderr=self._log, start_new_session=True, env={**host_environment(), **variables},
                pass_fds=(outside.fileno(),) if ticket.emulates else (),
            )  # fmt: skip
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: ``lost`` says how
            self.process.stdin.write(line_of(ticket))
            self.process.stdin.flush()

    def lost(self) -> str:
        code = self.process.poll()
        if code is None:
            return ""
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"its agent has ended with {how}"

    def output(self) -> str:
        return os.pread(self._log.fileno(), _MOST_OUTPUT_BYTES, 0).decode(errors="replace")

    def stop(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()  # it ends, and removes its directory
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


def _command(outside: int | None) -> list[str]:
    agent = [sys.executable, "-m", _AGENT]
    if outside is None:
        return ["setpriv", "--pdeathsig", "TERM", *agent]
    from emulation.sandbox import sandbox_command

    return sandbox_command([*agent, f"/proc/self/fd/{outside}"])


class LoopbackAgents:
    """See ``AgentStarter``."""

    address = "loopback"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        found, number = {}, _FIRST
        for name, wanted in cluster_of(plan).data_centers.items():
            count = wanted.machines or 1
            found[name] = [ClusterMachine(f"loopback{at}", address(at)) for at in range(number, number + count)]
            number += count
        return found

    def driver_address(self) -> str:
        return "127.0.0.1"

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        return AgentProcess(ticket)


def address(number: int) -> str:
    """Return the address of a machine on loopback."""
    return f"127.0.{number // 256}.{number % 256}"
