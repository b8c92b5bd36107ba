"""The agent of a run on one machine: starts the nodes that are placed there, and does what the driver asks.

``python -m testbed.execution.agent`` reads a ticket, a line of JSON, from standard input (``testbed.cluster.starting``
makes it), connects to the driver, and ends when that connection or standard input does: then nothing of the run is
left on the machine. It has one thread and no event loop, as nodes are forked from it.

The driver asks, by the key ``do``, and each question but the last three is answered by ``reply`` or ``error``:

prepare   import and read what nodes need       listen   bind the ports of the nodes here; answers with them
put       write a part of a checkpoint          begin    an attempt: addresses of all nodes, the run's epoch
start     start nodes                           explain, ask_for_stacks, hung, end: as ``Processes``
measure   round trips and rate to another agent serve    be the other end of that
signal    send a signal to nodes (no answer)    ping     tell the clock (answered by ``pong``)    quit

Where the run is emulated, the agent is in a sandbox (``emulation.sandbox``), and its argument is the path of the
machine's own network namespace; the questions about the network are those of ``testbed.execution.network_part``.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import platform
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from emulation.namespaces import inside
from testbed.cluster import files, links
from testbed.cluster.clocks import clock_of_machine
from testbed.cluster.control import Content, ControlConnection, ControlLost, connect
from testbed.cluster.directories import temporary_directory
from testbed.cluster.starting import Ticket
from testbed.environment import allow_descriptors
from testbed.errors import TestbedError
from testbed.execution.code_version import code_version
from testbed.execution.compiler import leave_out_compiler, may_compile
from testbed.execution.network_part import NetworkPart
from testbed.execution.scripts import failure_files
from testbed.plan.code import check_code
from testbed.plan.model import Plan, from_json
from testbed.process_id import close_in_children, die_with_parent
from testbed.realtime.auth import Credentials
from testbed.realtime.child import Launch
from testbed.realtime.node_processes import NodeProcesses, ProcessEnd
from testbed.realtime.sockets import Endpoints, MachineEndpoints
from testbed.realtime.tls import Tls, tls_of
from testbed.results import manifest

CONNECT_LIMIT_S = 30.0
DRIVER_SILENCE_S = 60.0  # it asks for the time four times a second, whatever else it does
_TICK_S = 0.1
_FILES_INTERVAL_S = 0.25
_GONE = 9  # exit status when the driver has ended


class Agent:
    """See the module's docstring. ``directory``: for the files of its nodes.

    ``outside``: path of the machine's own network namespace; empty: this process is in it.
    """

    def __init__(self, ticket: Ticket, directory: Path, connection: ControlConnection, outside: str = "") -> None:
        self._ticket, self._connection = ticket, connection
        self._plan: Plan = from_json(ticket.plan.encode())
        self._directory = directory
        self._tls = tls_of(ticket.pem) if ticket.pem else None
        self._sent_files = files.SentFiles(self._directory)
        self._files_due_s = 0.0
        self._endpoints: Endpoints | None = None
        self._outside = partial(inside, outside) if outside else contextlib.nullcontext
        self._part = NetworkPart(self._plan, directory / files.EVENTS, outside) if ticket.emulates else None
        self._processes: NodeProcesses | None = None
        self._attempt = contextlib.ExitStack()
        self._quit = False
        self._heard_s = time.monotonic()
        self._questions: dict[str, Callable[[Content], Any]] = {
            "prepare": self._prepare, "listen": self._listen, "put": self._put, "begin": self._begin, "end": self._end,
            "measure": self._measure, "serve": self._serve,
            **(self._part.questions | {"ended": self._network_ended} if self._part is not None else {}),
            "start": lambda asked: self._running().start(asked["nodes"], asked["since_s"]),
            "explain": lambda asked: self._running().explain(asked["node"], asked["code"]),
            "ask_for_stacks": lambda asked: self._running().ask_for_stacks(asked["node"]),
            "hung": lambda asked: self._running().hung(asked["node"], asked["why"]),
        }  # fmt: skip

    def run(self) -> None:
        """Serve until the driver has said ``quit``. Raise ``ControlLost`` if it is gone."""
        try:
            while not self._quit:
                self._turn()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all nodes are ended, whatever comes meanwhile
            self._attempt.close()
            if self._part is not None:
                self._part.close()
        self._send_files()  # what helpers of the network have written last

    def _turn(self) -> None:
        watched = select.poll()  # unlike select(2), it takes any descriptor
        for each in (self._connection.fileno(), 0, *([self._processes.fileno()] if self._processes else [])):
            watched.register(each, select.POLLIN)
        ready = dict(watched.poll(_TICK_S * 1e3))
        if self._connection.fileno() in ready:
            self._heard_s = time.monotonic()
        elif time.monotonic() - self._heard_s > DRIVER_SILENCE_S:
            raise ControlLost(f"the driver has been silent for {DRIVER_SILENCE_S:g} s")
        if 0 in ready and not os.read(0, 4096):
            raise ControlLost("what has started this agent is gone")
        for message in self._connection.receive():
            self._do(message)
        if self._processes is not None:
            self._send_events(self._processes)
        if self._part is not None:
            self._check(self._part)
        if time.monotonic() >= self._files_due_s:
            self._send_files()

    def _send_events(self, processes: NodeProcesses) -> None:
        for event in processes.wait(0.0):
            if isinstance(event, ProcessEnd):
                self._send_files()  # what it has written is there before its end is known
                about = {"code": event.code, "report": event.report, "killer": event.killer}
                self._connection.send({"ended": event.node, **about})
            else:
                self._connection.send({"line": event})

    def _check(self, part: NetworkPart) -> None:
        try:
            part.check()
        except TestbedError as error:
            self._connection.send({"broken": f"{self._ticket.name}: {error}"})

    def _send_files(self) -> None:
        self._sent_files.send_new(self._connection.send)
        self._files_due_s = time.monotonic() + _FILES_INTERVAL_S

    # ---- questions ----------------------------------------------------------------------------------------------

    def _do(self, message: Content) -> None:
        kind = message["do"]
        if kind == "ping":
            now_ns = time.monotonic_ns()  # not earlier: see ``AgentConnections``
            self._connection.send({"pong": message["t1"], "t2": now_ns, "t3": now_ns})
        elif kind == "signal":
            for node in message["nodes"]:
                self._running().send_signal(node, signal.Signals(message["number"]))
        elif kind == "follow" and self._part is not None:
            self._part.follow(message)
        elif kind == "lost" and self._part is not None:
            self._part.take_losses(message)
        elif kind == "quit":
            self._quit = True
        else:
            self._answer(message)

    def _answer(self, message: Content) -> None:
        try:
            value = self._questions[message["do"]](message)
        except TestbedError as error:
            notes = list(getattr(error, "__notes__", ()))
            answer = {"error": str(error), "of": type(error).__name__, "notes": notes}
        except Exception as error:
            text = f"{type(error).__name__}: {error} (an error in testbed itself; see host.log)"
            traceback.print_exc()
            answer = {"error": text, "of": "RunFailed", "notes": []}
        else:
            answer = {"reply": value}
        self._connection.send(answer | {"number": message["number"]})

    def _running(self) -> NodeProcesses:
        assert self._processes is not None, "no attempt has begun"
        return self._processes

    def _prepare(self, _: Content) -> None:
        from testbed.engine.learner import warm_up
        from testbed.execution.roles import fitted

        check_code(self._plan)
        if not may_compile(self._plan):
            leave_out_compiler()
        self._plan = fitted(self._plan, self._ticket.nodes)
        warm_up(self._plan)

    def _serve(self, asked: Content) -> int:
        with self._outside():
            return links.serve(asked, bind=self._ticket.bind)

    def _measure(self, asked: Content) -> dict[str, Any]:
        with self._outside():
            return links.measure(asked)

    def _listen(self, asked: Content) -> dict[str, int]:
        ports: dict[str, int] = asked["ports"]
        if self._part is not None:  # nodes bind the plan's addresses, in their namespaces
            self._endpoints = Endpoints(self._plan, in_namespaces=True)
            self._endpoints.beside = frozenset(ports)
            return ports
        self._endpoints = MachineEndpoints(self._ticket.bind, ports)
        return self._endpoints.ports

    def _put(self, asked: Content) -> None:
        files.put(self._directory, asked["part"])
        self._sent_files.leave_out()

    def _begin(self, asked: Content) -> None:
        from testbed.execution.resume import checkpoint_files
        from testbed.execution.roles import role_maker

        assert self._endpoints is not None, "ports are bound before an attempt begins"
        if isinstance(self._endpoints, MachineEndpoints):
            self._endpoints.meet({node: (host, port) for node, (host, port) in asked["addresses"].items()})
        failures = failure_files(self._plan, self._directory)
        checkpoints = checkpoint_files(self._plan, self._directory, self._warn)
        resumed = checkpoints.resumed if checkpoints is not None else None
        launch = Launch(
            absent=frozenset(resumed.members.missing) if resumed is not None else None,
            make_role=role_maker(self._plan, checkpoints, failures), event_directory=self._directory / files.EVENTS,
            epoch_ns=asked["epoch_ns"], failures=failures, endpoints=self._endpoints,
            credentials=credentials(self._ticket, asked["attempt"], self._tls),
            enter=None if self._part is None else self._part.enter,
            realtime=self._part is not None and self._part.realtime,
        )  # fmt: skip
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._attempt.callback(os.close, wake)
        processes = NodeProcesses(self._plan, launch, asked["epoch_ns"], wake)
        if failures is not None:
            self._attempt.callback(failures.close)
        self._processes = self._attempt.enter_context(processes)

    def _network_ended(self, asked: Content) -> Any:
        assert self._part is not None
        counters = self._part.questions["ended"](asked)
        self._send_files()
        return counters

    def _warn(self, line: dict[str, Any]) -> None:
        if line["kind"] == "warning":  # in what stage the run is, the driver says for all
            self._connection.send({"line": line})

    def _end(self, _: Content) -> None:
        """End the attempt: all its nodes, after which everything that they have written is sent."""
        self._attempt.close()
        self._processes, self._endpoints = None, None
        self._send_files()
        shutil.rmtree(self._directory / files.CHECKPOINTS, ignore_errors=True)  # another attempt may write others


def credentials(ticket: Ticket, attempt: int, tls: Tls | None) -> Credentials:
    """Return the credentials of an attempt. All agents derive the same; nodes left of other attempts are rejected."""
    derived = hmac.digest(bytes.fromhex(ticket.secret), f"attempt {attempt}".encode(), "sha256")
    return Credentials(f"{ticket.run_id}-{attempt}", derived, tls)


def about_machine() -> dict[str, Any]:
    """Return what the manifest says of this machine, and whether its clock is that of another."""
    return {
        **manifest.machine(), "hostname": platform.node(), "python": platform.python_version(),
        "packages": manifest.packages(), "testbed": manifest.git_state(), "sources_sha256": code_version("cluster"),
        "clock_of": clock_of_machine(),
    }  # fmt: skip


def main(outside: str = "") -> int:
    """Run the agent to its end; return the exit status. ``outside``: as for ``Agent``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until its directory is sure to be removed
    die_with_parent(signal.SIGTERM)  # beside the end of standard input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    ticket = Ticket(**json.loads(sys.stdin.buffer.readline()))
    os.umask(0o077)
    allow_descriptors()
    # in a sandbox, in memory that ends with it
    with temporary_directory("testbed-agent-", "/run/testbed" if ticket.emulates else None) as directory:
        try:
            signal.signal(signal.SIGTERM, _terminate)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            return _serve_driver(ticket, directory, outside)
        finally:
            # The end of standard input and the signal of the driver's death come one after the other, the second
            # perhaps at this line: then the other process removes the directory.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _terminate(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(_GONE)


def _serve_driver(ticket: Ticket, directory: Path, outside: str) -> int:
    with contextlib.suppress(OSError):
        os.chdir(ticket.working_directory)
    sys.path.append(ticket.working_directory)  # as in the host process
    connection = None
    try:
        tls = tls_of(ticket.pem) if ticket.pem else None
        driver = (ticket.driver[0], int(ticket.driver[1]))
        with inside(outside) if outside else contextlib.nullcontext():
            connection = connect(driver, ticket.name, bytes.fromhex(ticket.key), tls, CONNECT_LIMIT_S)
        close_in_children(connection.fileno())
        connection.send({"hello": about_machine()})
        Agent(ticket, directory, connection, outside).run()
    except ControlLost as error:
        sys.stderr.write(f"{ticket.name}: {error}\n")
        return _GONE
    finally:
        if connection is not None:
            connection.close()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1] if len(sys.argv) > 1 else "")
    sys.stderr.flush()
    os._exit(status)  # a script's threads may still run
