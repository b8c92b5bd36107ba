"""The process of an agent, and how agents are started: as processes of this machine, or by Ray on other machines.

For a deployment without a cluster, agents run on this machine, each with its own loopback address. An agent and the
process that started it exchange pickled messages over a pair of sockets, and the agent ends when its socket closes.
Only Ray reaches agents on other machines.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement, cluster_of
from testbed.environment import host_environment, own_interpreter
from testbed.plan.model import Plan
from testbed.processes.child import Child, spawn

_STOP_S = 5.0
_MOST_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What an agent needs to know to start, including the run's secrets.

    secret  the run's secret, in hexadecimal
    plan    the Plan, as JSON
    bind    IP address on which the agent's nodes listen
    nodes   names of the agent's nodes
    pem     key and certificate of the run, if it uses TLS
    """

    name: str
    secret: str = field(repr=False)
    run_id: str
    plan: bytes
    bind: str
    nodes: tuple[str, ...]
    working_directory: str
    pem: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question: a value, or the name of an error's class with its text and notes."""

    value: Any = None
    error: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()


class StartedAgent(Protocol):
    """An agent on any machine. Several threads may use it. Its methods raise ``ConnectionError`` if it has ended."""

    def call(self, question: str, *arguments: Any, limit_s: float) -> Answer:
        """Return the answer to a question of ``testbed.execution.agent``."""

    def clock_ns(self, limit_s: float) -> int:
        """Return the time on CLOCK_MONOTONIC of its machine."""

    def events(self, wait_s: float) -> list[Any]:
        """Return the events that the agent has sent since the last call; wait for one at most ``wait_s``."""

    def lost(self) -> str:
        """Return why the agent no longer runs; empty while it may still run."""

    def output(self) -> str:
        """Return what the agent has written to its standard output and error, as far as this is known."""

    def stop(self) -> None:
        """End the agent, if it still runs, and the processes that it leaves behind."""


class AgentStarter(Protocol):
    """Starts agents on this machine or on the machines of a cluster. ``address``: the address of the cluster."""

    address: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        """Return the machines for each data centre, in a fixed order."""

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        """Start an agent, and return without waiting for it."""


class AgentProcess:
    """An agent as a child of this process; see ``StartedAgent``.

    ``variables``: environment variables of the agent, in addition to those of host processes.
    """

    def __init__(self, ticket: Ticket, variables: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+b")
        ours, its = socket.socketpair()
        with its:
            self._process = self._started(its.fileno(), variables or {})
        self._connection = Connection(ours.detach())
        self._events = queue.SimpleQueue[Any]()
        self._answers: dict[int, Future[Answer]] = {}
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        self._gone = threading.Event()
        with contextlib.suppress(OSError):  # the agent has ended; ``lost`` says how
            self._connection.send(ticket)
        self._reader = threading.Thread(target=self._read, name=f"agent {ticket.name}", daemon=True)
        self._reader.start()

    def _started(self, descriptor: int, variables: Mapping[str, str]) -> Child:
        return spawn(
            [*own_interpreter(), "-m", "testbed.execution.agent", str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={**host_environment(), **variables},
            pass_fds=(descriptor,),
        )

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, tuple):
                    number, answer = message
                    self._answers.pop(number).set_result(answer)
                else:
                    self._events.put(message)
        self._gone.set()
        for future in list(self._answers.values()):
            future.set_exception(ConnectionError(self._how_it_ended()))

    def call(self, question: str, *arguments: Any, limit_s: float) -> Answer:
        future: Future[Answer] = Future()
        with self._sending:
            number = next(self._numbers)
            self._answers[number] = future
            if self._gone.is_set():
                raise ConnectionError(self._how_it_ended())
            try:
                self._connection.send((number, question, arguments))
            except OSError as error:
                raise ConnectionError(self._how_it_ended()) from error
        try:
            return future.result(limit_s)
        except Late as error:
            raise ConnectionError(f"no answer to {question!r} within {limit_s:g} s") from error

    def clock_ns(self, limit_s: float) -> int:
        return int(self.call("clock", limit_s=limit_s).value)

    def events(self, wait_s: float) -> list[Any]:
        found: list[Any] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=wait_s))
            while True:
                found.append(self._events.get_nowait())
        if not found and self._gone.is_set():
            raise ConnectionError(self._how_it_ended())
        return found

    def _how_it_ended(self) -> str:
        self._process.wait(_STOP_S)
        return self.lost() or "its connection has ended"

    def lost(self) -> str:
        code = self._process.wait(0.0)
        if code is None:
            return ""
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"its agent has ended with {how}"

    def output(self) -> str:
        return os.pread(self._log.fileno(), _MOST_OUTPUT_BYTES, 0).decode(errors="replace")

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # the agent sees this, removes its directory, and ends
            socket.socket(fileno=os.dup(self._connection.fileno())).shutdown(socket.SHUT_RDWR)
        self._process.wait(_STOP_S)
        self._process.kill_group()
        self._reader.join()
        self._process.close()


class LoopbackAgents:
    """Starts agents on this machine, each with its own loopback address; see ``AgentStarter``."""

    address = "loopback"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        numbers = itertools.count(2)  # from 127.0.0.2 on; other programs use 127.0.0.1
        return {
            name: [_on_loopback(next(numbers)) for _ in range(wanted.machines or 1)]
            for name, wanted in cluster_of(plan).data_centers.items()
        }

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        return AgentProcess(ticket)


def _on_loopback(number: int) -> ClusterMachine:
    return ClusterMachine(f"loopback{number}", f"127.0.{number // 256}.{number % 256}")
