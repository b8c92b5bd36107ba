"""One run of real processes, from the start of its nodes to the end of the last: when it ends, and with which error.

When a node fails, the fleet ends the others and raises an error that names the first cause. It ends a run that makes no
progress, and reports which node waits for what. It injects the plan's faults. The loss of a node that the run can
continue without does not end the run.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from testbed.errors import Interrupted, NodeLost, RunFailed, TestbedError, WaitTimeout
from testbed.plan.fault_clock import FaultClock, expendable
from testbed.plan.model import Plan, monitor_of
from testbed.processes.child import Line
from testbed.realtime.child import Launch
from testbed.realtime.faults import FaultInjector
from testbed.realtime.fleet_status import FleetStatus, NodeExit, first_cause
from testbed.realtime.heartbeat import PeerLost
from testbed.realtime.node import STATUS_INTERVAL_S
from testbed.realtime.node_processes import NodeProcesses, ProcessEnd, Processes
from testbed.results.events import STOPPED
from testbed.results.progress import Progress

__all__ = ["Fleet", "Launch"]

StartProcesses = Callable[[Plan, Launch, int, int], Processes]

# When a node fails, its peers fail within milliseconds. The fleet collects exits for this long after the first one, as
# a later exit may name the cause: the first node to end often reports only that it has lost a peer.
_CAUSE_GRACE_S = 0.25
_KILL_AFTER_S = 3.0  # after SIGTERM
_TICK_S = 0.1
_FAILED = 1


@contextlib.contextmanager
def _signals_call(stop: Callable[[str], None]) -> Iterator[None]:
    """Within the context, SIGINT and SIGTERM only call ``stop``: an exception at any point would break our bookkeeping.

    In other threads than the main one, which alone gets signals, this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reasons = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
    before = {number: signal.signal(number, lambda n, _: stop(reasons[signal.Signals(n)])) for number in reasons}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code(end: ProcessEnd, report: Line) -> int:
    """Return the exit code of a node. A node reports every end, also a good one.

    If a signal ended the process after its report (from us, or as a library crashed at exit), the report counts. A
    status of 0 without a report is a failure: a script has ended the process.
    """
    if report and end.code <= 0:
        return int(report.get("code", _FAILED))
    return end.code or _FAILED


class Fleet:
    """One run. ``exits`` grows during ``run``, in the order in which nodes end; ``wait_graph`` is set at the end.

    ``start_processes`` makes the ``Processes`` of the run. By default the nodes are children of this process, which
    must then have no running event loop and no other threads (see ``node_processes``).
    """

    def __init__(self, plan: Plan, launch: Launch, start_processes: StartProcesses = NodeProcesses) -> None:
        self._plan = plan
        self._launch = launch
        self._start_processes = start_processes
        self.exits: list[NodeExit] = []
        self.wait_graph = ""
        self._abort: TestbedError | None = None  # why all nodes were ended, if no node's own failure is the reason
        self._stopped: Interrupted | None = None  # set when ``stop`` was called
        self._ending = False  # all nodes have been sent SIGTERM
        self._returning: set[str] = set()  # nodes to start again as soon as their lost process has ended
        self._joining: set[str] = set()  # nodes started in a run in progress that have not been active yet
        self._silent: dict[str, str] = {}  # nodes with a script that another node has lost: its message, by lost node
        self._hung: dict[str, str] = {}  # by node of ``_silent``: what its script was doing
        self._errors: dict[str, Line] = {}  # by node: errors recorded before all nodes were told to end
        self._stop_at_s = self._kill_at_s = float("inf")
        self._continues = plan.recovery.on_failure == "continue"
        self._monitor = monitor_of(plan)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoch_ns = launch.epoch_ns or time.monotonic_ns()
        due = launch.due or FaultClock(plan)
        self._absent = due.absent
        self._faults = FaultInjector(plan, due, self._epoch_ns, self._signal, self._start_again, launch.on_fault)

    def run(self, on_progress: Progress = lambda line: None) -> list[NodeExit]:
        """Start the nodes and return their exits when the last has ended; ``on_progress`` gets each of their lines.

        Raises the error of the first cause (``RunFailed``, ``WaitTimeout``, …) if a node failed, and ``Interrupted``
        after ``stop``.
        """
        self._on_progress = on_progress
        self._started_s = time.monotonic()
        self._status = FleetStatus(self._started_s)
        try:
            with (
                _signals_call(self.stop),
                self._start_processes(self._plan, self._launch, self._epoch_ns, self._wake) as self._processes,
            ):
                present = [node.name for node in self._plan.nodes if node.name not in self._absent]
                self._start(present)
                if self._launch.hold is not None:
                    self._launch.hold.carry_out()
                    self._status.advanced_at_s = time.monotonic()
                while self._processes:
                    self._turn()
                if (cause := first_cause(self.exits)) and cause.cause == PeerLost.__name__:
                    self._hung = {node: self._processes.hung(node, why) for node, why in self._silent.items()}
        finally:
            os.close(self._wake)
        return self._outcome()

    def stop(self, reason: str) -> None:
        """End all nodes with SIGTERM, or with SIGKILL if called again; ``run`` then raises ``Interrupted``.

        A signal handler or another thread may call it. ``run`` calls it at SIGINT and SIGTERM.
        """
        if self._ending or self._stopped:  # a second call may come before nodes got the first one's SIGTERM
            self._kill_at_s = 0.0
        self._stopped = self._stopped or Interrupted(f"the run was ended: {reason}")
        self._end_with(self._stopped)
        os.eventfd_write(self._wake, 1)

    def _outcome(self) -> list[NodeExit]:
        cause = first_cause(self.exits)
        self.wait_graph = self._status.wait_graph()
        error = self._abort or (cause and cause.error())
        if not error:
            return self.exits
        if self._hung:
            error = NodeLost(": ".join(next(iter(self._hung.items()))))
        if isinstance(error, NodeLost) and self._stopped and self._plan.recovery.on_failure == "restart":
            raise self._stopped from error  # stopped while nodes ended, so the run must not restart
        if isinstance(error, WaitTimeout) and self.wait_graph:
            error.add_note(self.wait_graph)
        raise error

    # ---- one turn -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for event in self._processes.wait(min(_TICK_S, self._faults.left_s())):
            if isinstance(event, ProcessEnd):
                self._on_end(event)
            else:
                self._on_line(event)
        self._faults.fire()
        for node in [node for node in self._returning if node not in self._processes]:
            self._returning.discard(node)
            self._start_again(node)
        now_s = time.monotonic()
        self._check_progress(now_s)
        if now_s >= self._stop_at_s:
            self._ending = True
            self._processes.send_signal_to_all(signal.SIGTERM)
            self._stop_at_s, self._kill_at_s = float("inf"), min(self._kill_at_s, now_s + _KILL_AFTER_S)
        if now_s >= self._kill_at_s:
            self._processes.send_signal_to_all(signal.SIGKILL)
            self._kill_at_s = float("inf")

    def _on_line(self, line: Line) -> None:
        if line["kind"] == "status":
            self._status.update(line, time.monotonic())
            if line["activity"]:
                self._joining.discard(line["node"])
        elif line["kind"] == "error" and line["cause"] != STOPPED and not self._ending:
            self._errors[line["node"]] = line
        self._faults.take(line)
        self._on_progress(line)

    def _on_end(self, end: ProcessEnd) -> None:
        # A node with an error of its own may exit so slowly (workers are niced) that it gets SIGTERM because its peers
        # have ended. Its exit is a failure nevertheless, and explains those of the others.
        failed = end.node in self._errors
        report = end.report or self._errors.get(end.node, {})
        goes_on = self._is_dispensable(end)
        stopped = (self._ending and not failed) or goes_on
        wait = report.get("wait")
        fault = end.node in self._faults.killed
        told = bool(report) or stopped or fault
        exit_ = NodeExit(
            end.node,
            _code(end, report),
            stopped,
            **{name: report.get(name, "") for name in ("cause", "message", "traceback")},
            explained="" if told else self._processes.explain(end.node, end.code),
            wait=tuple(wait) if wait else None,
            killer="a fault of the scenario" if fault else end.killer,
            at_s=self._errors.get(end.node, {}).get("t", math.inf),
        )
        if (peer := end.report.get("peer")) and not stopped and self._processes.ask_for_stacks(peer):
            self._silent.setdefault(peer, exit_.message)
        self.exits.append(exit_)
        self._joining.discard(end.node)
        if not goes_on:
            self._returning.discard(end.node)
        self._status.end(exit_, goes_on and not self._ending)
        if exit_.failed or (self._continues and end.node == self._monitor):
            self._end_all(_CAUSE_GRACE_S)  # without the monitor, nodes that still run would wait for ever

    def _is_dispensable(self, end: ProcessEnd) -> bool:
        """Return whether the run continues without a node that was killed, lost a peer, or could not join."""
        causes = [NodeLost.__name__, PeerLost.__name__]
        if end.node in self._joining:
            causes += [RunFailed.__name__, WaitTimeout.__name__]
        lost = end.code < 0 or end.report.get("cause") in causes
        return lost and end.node in expendable(self._plan)

    def _check_progress(self, now_s: float) -> None:
        timeouts = self._plan.timeouts
        if now_s - self._started_s > timeouts.run_deadline_s:
            self._end_with(RunFailed(f"the run has not ended within its deadline of {timeouts.run_deadline_s:g} s"))
        # A node knows best which of its waits has passed the deadline, so the fleet leaves it a few status intervals.
        limit_s = timeouts.step_deadline_s + 4 * STATUS_INTERVAL_S
        if now_s - self._status.advanced_at_s > limit_s:
            node, what, since_s = self._status.longest_wait() or ("the run", "any node to advance", 0.0)
            self._end_with(WaitTimeout(node, what, since_s, limit_s))

    # ---- ending and starting again ------------------------------------------------------------------------------

    def _end_with(self, error: TestbedError) -> None:
        if not self._ending and self._abort is None:
            self._abort = error
            self._end_all(0.0)

    def _end_all(self, after_s: float) -> None:
        self._stop_at_s = min(self._stop_at_s, time.monotonic() + after_s)

    def _signal(self, node: str, number: signal.Signals) -> bool:
        return self._processes.send_signal(node, number)

    def _start(self, nodes: list[str]) -> None:
        self._processes.start(nodes, self._faults.training_since_s)
        self._status.advanced_at_s = time.monotonic()  # starting may take long on other machines, and no line was read

    def _start_again(self, name: str) -> None:
        """Start a lost node again, and the nodes that ended because of it, if the run has continued without them."""
        if not self._continues or self._ending or self._monitor not in self._processes:
            return
        if name in self._faults.killed and name in self._processes:  # on a busy machine, SIGKILL takes a while
            self._returning.add(name)
            return
        missing = [node for node in self._faults.effects.starting(name) if node not in self._processes]
        self._faults.killed.difference_update(missing)
        for node in missing:
            self._errors.pop(node, None)  # the error of its earlier process
            # workers of a lost server that still run are about to end, as they have lost it
            self._returning.update(child for child in self._plan.node(node).children if child in self._processes)
        self._joining.update(missing)
        self._start(missing)
