"""How agents are started, on this machine or on those of a cluster, and the ticket that each of them is given.

On this machine they are processes with an address each on loopback: a deployment without a cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement, cluster_of
from testbed.environment import host_environment, own_interpreter
from testbed.plan.model import Plan

_STOP_S = 5.0
_MOST_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What an agent needs to know before it can connect; it holds the run's secrets.

    driver     host and port at which the driver listens
    key        of the control connection, in hexadecimal; ``secret``: of the run
    pem        key and certificate of the run, if it has TLS
    emulates   whether the agent makes a part of an emulated network, in a sandbox
    """

    name: str
    driver: tuple[str, int]
    key: str = field(repr=False)
    secret: str = field(repr=False)
    run_id: str
    plan: str
    bind: str
    nodes: tuple[str, ...]
    working_directory: str
    emulates: bool = False
    pem: str = field(default="", repr=False)


class StartedAgent(Protocol):
    """An agent that has been started somewhere."""

    def lost(self) -> str:
        """Return why it cannot be running any more; empty while it may be."""

    def output(self) -> str:
        """Return what it has written to its standard error, as far as that can be known."""

    def stop(self) -> None:
        """End it, if it still runs, and remove what it leaves."""


class AgentStarter(Protocol):
    """Starts agents: on this machine, or on those of a cluster. ``address``: of the cluster."""

    address: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        """Return the machines for each data centre, in a fixed order."""

    def driver_address(self) -> str:
        """Return the address at which agents reach the driver."""

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        """Start an agent; return at once."""


class AgentProcess:
    """An agent that is a child of this process. ``variables``: of its environment, beside those of host processes.

    One that emulates is in a sandbox, and keeps a descriptor of the machine's own network namespace.
    """

    def __init__(self, ticket: Ticket, variables: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+b")
        with open("/proc/self/ns/net", "rb") as outside:
            self.process = subprocess.Popen(
                _command(outside.fileno() if ticket.emulates else None), stdin=subprocess.PIPE, stdout=self._log,
                stderr=self._log, start_new_session=True, env={**host_environment(), **(variables or {})},
                pass_fds=(outside.fileno(),) if ticket.emulates else (),
            )  # fmt: skip
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: ``lost`` says how
            self.process.stdin.write(json.dumps(asdict(ticket)).encode() + b"\n")
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
    agent = [*own_interpreter(), "-m", "testbed.execution.agent"]
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
        numbers = itertools.count(2)  # 127.0.0.2; others use 127.0.0.1
        return {
            name: [_on_loopback(next(numbers)) for _ in range(wanted.machines or 1)]
            for name, wanted in cluster_of(plan).data_centers.items()
        }

    def driver_address(self) -> str:
        return "127.0.0.1"

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        return AgentProcess(ticket)


def _on_loopback(number: int) -> ClusterMachine:
    return ClusterMachine(f"loopback{number}", f"127.0.{number // 256}.{number % 256}")
