"""The agent of a run on one machine: starts the nodes that are placed there, and answers the driver's questions.

``python -m testbed.execution.agent DESCRIPTOR`` is a child of the process that passes the driver's questions on
(``testbed.cluster.agent_process``). It ends when the socket DESCRIPTOR closes, and then leaves nothing of the run on
the machine. It has one thread and no event loop, as it forks nodes. The first message is its ``Ticket``.

Every other message is a number, a question and its arguments; the answer has the same number. Without being asked, the
agent sends its nodes' lines of progress, their ends, and the files that they have written. The questions:

describe  describe this machine                  clock    CLOCK_MONOTONIC, in ns
prepare   import and read what nodes need        listen   bind the ports of the nodes here; answers with them
put       write a file of a checkpoint           begin    an attempt: addresses of all nodes, the run's epoch
start     start nodes                            signal, explain, ask_for_stacks, hung, end: as ``Processes``
measure   round trips and rate to another agent  serve    be the other end of such a measurement
"""

from __future__ import annotations

import contextlib
import hmac
import os
import platform
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from testbed.cluster import files, links
from testbed.cluster.agent_process import Answer, Ticket
from testbed.cluster.clocks import clock_of_machine
from testbed.cluster.directories import temporary_directory
from testbed.environment import allow_descriptors
from testbed.errors import TestbedError
from testbed.execution.code_version import packages
from testbed.execution.compiler import leave_out_compiler, may_compile
from testbed.execution.scripts import failure_files
from testbed.plan.code import check_code
from testbed.plan.model import Plan, from_json
from testbed.processes.child import Child, close_in_children
from testbed.realtime.auth import Credentials
from testbed.realtime.child import Launch
from testbed.realtime.node_processes import NodeProcesses
from testbed.realtime.sockets import Address, MachineEndpoints
from testbed.realtime.tls import Tls, tls_of
from testbed.results import manifest

_TICK_S = 0.1
_FILES_INTERVAL_S = 0.25


class Agent:
    """See the module's docstring. ``directory``: a directory for the files of its nodes."""

    def __init__(self, ticket: Ticket, directory: Path, connection: Connection) -> None:
        self._ticket = ticket
        self._connection = connection
        self._directory = directory
        self._plan: Plan = from_json(ticket.plan)
        self._tls = tls_of(ticket.pem) if ticket.pem else None
        self._files = files.WrittenFiles(self._directory)
        self._files_due_s = 0.0
        self._endpoints: MachineEndpoints | None = None
        self._processes: NodeProcesses | None = None
        self._attempt = contextlib.ExitStack()
        self._serving: Child | None = None  # the process at the other end of a measurement
        self._questions: dict[str, Callable[..., Any]] = {
            "describe": about_machine,
            "clock": time.monotonic_ns,
            "prepare": self._prepare,
            "listen": self._listen,
            "put": self._files.put,
            "begin": self._begin,
            "end": self._end,
            "signal": self._signal,
            "measure": links.measure,
            "serve": self._serve,
            "start": lambda nodes, since_s: self._running().start(nodes, since_s),
            "explain": lambda node, code: self._running().explain(node, code),
            "ask_for_stacks": lambda node: self._running().ask_for_stacks(node),
            "hung": lambda node, why: self._running().hung(node, why),
        }

    def run(self) -> None:
        """Serve until the connection ends; then end all nodes."""
        try:
            while True:
                self._turn()
        except (EOFError, ConnectionError):
            pass
        finally:
            self._attempt.close()

    def _turn(self) -> None:
        watched = select.poll()  # unlike select(2), it takes any descriptor
        for each in (self._connection.fileno(), *([self._processes.fileno()] if self._processes else [])):
            watched.register(each, select.POLLIN)
        if self._connection.fileno() in dict(watched.poll(_TICK_S * 1e3)):
            number, question, arguments = self._connection.recv()
            self._connection.send((number, self._answer(question, arguments)))
        for event in self._processes.wait(0.0) if self._processes is not None else ():
            self._tell_files()  # send the files of a process before the event of its end
            self._connection.send(event)
        if time.monotonic() >= self._files_due_s:
            self._tell_files()

    def _tell_files(self) -> None:
        for piece in self._files.new():
            self._connection.send(piece)
        self._files_due_s = time.monotonic() + _FILES_INTERVAL_S

    def _answer(self, question: str, arguments: tuple[Any, ...]) -> Answer:
        try:
            return Answer(self._questions[question](*arguments))
        except TestbedError as error:
            return Answer(None, type(error).__name__, str(error), tuple(getattr(error, "__notes__", ())))
        except Exception as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error} (an error in testbed itself; see host.log)"
            return Answer(None, "RunFailed", text)

    # ---- questions ----------------------------------------------------------------------------------------------

    def _running(self) -> NodeProcesses:
        assert self._processes is not None, "no attempt has begun"
        return self._processes

    def _prepare(self) -> None:
        from testbed.engine.learner import warm_up
        from testbed.execution.roles import fitted

        check_code(self._plan)
        if not may_compile(self._plan):
            leave_out_compiler()
        self._plan = fitted(self._plan, self._ticket.nodes)
        warm_up(self._plan)

    def _serve(self, bind: str, token: bytes) -> int:
        if self._serving is not None:
            self._serving.close()
        port, self._serving = links.serve(bind, token)
        return port

    def _listen(self, ports: Mapping[str, int]) -> dict[str, int]:
        self._endpoints = MachineEndpoints(self._ticket.bind, ports)
        return self._endpoints.ports

    def _signal(self, nodes: Sequence[str], number: signal.Signals) -> None:
        for node in nodes:
            self._running().send_signal(node, number)

    def _begin(self, attempt: int, epoch_ns: int, addresses: Mapping[str, Address]) -> None:
        from testbed.execution.resume import checkpoint_files
        from testbed.execution.roles import role_maker

        assert self._endpoints is not None, "ports are bound before an attempt begins"
        self._endpoints.meet(addresses)
        failures = failure_files(self._plan, self._directory)
        checkpoints = checkpoint_files(self._plan, self._directory, self._warn)
        resumed = checkpoints.resumed if checkpoints is not None else None
        launch = Launch(
            absent=frozenset(resumed.members.missing) if resumed is not None else None,
            make_role=role_maker(self._plan, checkpoints, failures),
            event_directory=self._directory / files.EVENTS,
            epoch_ns=epoch_ns,
            failures=failures,
            endpoints=self._endpoints,
            credentials=credentials(self._ticket, attempt, self._tls),
        )
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._attempt.callback(os.close, wake)
        processes = NodeProcesses(self._plan, launch, epoch_ns, wake)
        if failures is not None:
            self._attempt.callback(failures.close)
        self._processes = self._attempt.enter_context(processes)

    def _warn(self, line: dict[str, Any]) -> None:
        if line["kind"] == "warning":  # the driver itself reports the stages of the run
            self._connection.send(line)

    def _end(self) -> None:
        """End the attempt: end all nodes, then send everything that they have written."""
        self._attempt.close()
        self._processes = None
        self._endpoints = None
        self._tell_files()
        self._files.forget_checkpoints()


def credentials(ticket: Ticket, attempt: int, tls: Tls | None) -> Credentials:
    """Return the credentials of an attempt. All agents derive the same, so nodes of other attempts are rejected."""
    derived = hmac.digest(bytes.fromhex(ticket.secret), f"attempt {attempt}".encode(), "sha256")
    return Credentials(f"{ticket.run_id}-{attempt}", derived, tls)


def about_machine() -> dict[str, Any]:
    """Return the manifest's description of this machine, and a text by which to see whether machines share a clock."""
    return {
        **manifest.machine(),
        "hostname": platform.node(),
        "python": platform.python_version(),
        "packages": manifest.packages(),
        "testbed": manifest.git_state(),
        "versions": packages(),
        "clock_of": clock_of_machine(),
    }


def main(descriptor: int) -> int:
    """Run the agent to its end; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    connection = Connection(descriptor)
    close_in_children(descriptor)
    try:
        ticket: Ticket = connection.recv()
    except EOFError:
        return 0
    os.umask(0o077)
    allow_descriptors()
    with contextlib.suppress(OSError):
        os.chdir(ticket.working_directory)
    sys.path.append(ticket.working_directory)  # as in the host process
    with temporary_directory("testbed-agent-") as directory:
        Agent(ticket, directory, connection).run()
    return 0


if __name__ == "__main__":
    status = main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(status)  # a script's threads may still run
