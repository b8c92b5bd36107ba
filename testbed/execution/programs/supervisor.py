"""Supervision of all processes of a program's run: when the run ends, and with which error.

Each program runs below a process that kills everything it leaves (``testbed.processes.first``). When a process fails,
the supervisor ends the others, and raises an error with the name of the first that failed and the end of its log. It
injects the Plan's faults; how the other processes react to the loss of one is up to the program.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.errors import RunFailed
from testbed.execution.programs.launch import Hosts, ProgramProcess, processes_of
from testbed.execution.programs.metrics import FileTail
from testbed.execution.programs.process import RunningProcess, failure
from testbed.execution.recovery import Attempts
from testbed.plan.model import Plan
from testbed.processes import first
from testbed.realtime.faults import FaultInjector
from testbed.results.oom_kills import OomKills
from testbed.results.progress import Progress

GRACE_S = 3.0  # between SIGTERM and SIGKILL
_CAUSE_GRACE_S = 0.5  # after the first failure, as the failure that caused it may be reported later
_TICK_S = 0.1
_STATUS_S = 0.5
_PORT_CHECK_S = 0.02
_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp


def run_programs(plan: Plan, directory: Path, report: Progress, epoch_ns: int, hosts: Hosts) -> None:
    """Run the program of the Plan to its end. Raise ``RunFailed`` with the cause if a process fails.

    directory  the run directory
    report     gets lines of progress
    epoch_ns   the run's start on CLOCK_MONOTONIC
    """
    processes = processes_of(plan, hosts, directory)
    with Attempts(plan, directory, report) as attempts, Supervisor(plan, directory, report, epoch_ns, hosts) as all_:
        all_.run(processes, attempts)


class Supervisor:
    """The running processes, by node. Leaving the context ends them and all processes that they have started."""

    def __init__(self, plan: Plan, directory: Path, report: Progress, epoch_ns: int, hosts: Hosts) -> None:
        assert plan.program is not None
        self._plan = plan
        self._program = plan.program
        self._hosts = hosts
        self._directory = directory
        self._report = report
        self._epoch_ns = epoch_ns
        self._running: dict[str, RunningProcess] = {}
        self._kills = OomKills.now()
        self._failed: list[tuple[ProgramProcess, int, str]] = []  # as for ``failure``
        self._selector = selectors.DefaultSelector()
        self._lifeline = os.pipe()
        self._returning: set[str] = set()  # nodes to start again as soon as their killed process has ended
        self._stopping = False
        self._fail_at_s = self._status_at_s = float("inf")

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            with contextlib.suppress(KeyboardInterrupt):  # a second interrupt skips the grace period
                self._stop_all()
                self._turn_until(lambda: not self._running, time.monotonic() + GRACE_S)
        for descriptor in self._lifeline:  # at end of file, the processes around programs kill everything
            os.close(descriptor)
        for process in list(self._running.values()):
            process.wait()
            process.close(self._now_s())
        self._selector.close()

    def run(self, processes: list[ProgramProcess], attempts: Attempts) -> None:
        """Run all processes to the end; ``attempts`` has the clock of the faults and records them."""
        self._by_node = {process.node.name: process for process in processes}
        self._faults = FaultInjector(
            self._plan, attempts.clock, self._epoch_ns, self._signal_node, self._start_again, attempts.on_fault
        )
        self._deadline_s = time.monotonic() + self._program.timeout_s
        self._status_at_s = time.monotonic()
        first = processes[0]
        begin = {"t": self._now_s(), "node": first.node.name, "workers": len(processes), "rounds": 0}
        self._faults.take({"kind": "train", **begin})
        self._report({"kind": "train", **begin})
        self._start(first, training=begin)
        if self._program.listens:
            self._wait_for_port(first)
        for process in processes[1:]:
            self._start(process)
        self._turn_until(self._is_over)
        self._stop_all()
        self._turn_until(lambda: not self._running)
        self._raise_failure()

    # ---- starting -----------------------------------------------------------------------------------------------

    def _start(self, process: ProgramProcess, training: Mapping[str, object] | None = None) -> None:
        lifeline = str(self._lifeline[0])
        around = [sys.executable, "-S", "-E", first.__file__, "--lifeline", lifeline, "--grace", str(GRACE_S), "--"]
        # made before the program starts, to skip what earlier processes have written
        file = FileTail(process.metrics_file) if process.metrics_file else None
        try:
            with open(process.log, "ab") as log:
                child = self._hosts.start(
                    process.node.name,
                    [*around, *self._hosts.as_node(process.node.name), *process.argv],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if process.reports_on_stdout else log,
                    stderr=log,
                    pass_fds=(self._lifeline[0],),
                    cwd=self._program.cwd,
                    env=process.environment,
                    process_group=0,  # in the host's group it could be killed before it has killed its descendants
                )
        except OSError as error:
            raise RunFailed(f"{process.node.name}: cannot be started: {error.strerror}: {error.filename}") from error
        running = RunningProcess(process, child, self._directory, self._now_s(), self._hosts.counters, training)
        running.file = file
        self._running[process.node.name] = running
        for descriptor in running.descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, running)

    def _start_again(self, node: str) -> None:
        """Start the process of a node again after a fault has killed it."""
        if node not in self._faults.killed or self._stopping or not self._faults.effects.starting(node):
            return
        if node in self._running:
            self._returning.add(node)
        else:
            self._faults.killed.discard(node)
            self._start(self._by_node[node])

    def _wait_for_port(self, first: ProgramProcess) -> None:
        """Return when a process on the first node listens on the program's port."""
        port = self._program.listens
        node = first.node.name
        while node in self._running and not _listens(self._running[node].child.pid, port):
            self._turn(_PORT_CHECK_S)
            if time.monotonic() > self._deadline_s:
                raise RunFailed(f"{node} did not listen on port {port} within workload.timeout; its log: {first.log}")
        if node not in self._running:
            self._raise_failure()
            raise RunFailed(f"{node} ended before it listened on port {port} (workload.listens); its log: {first.log}")

    # ---- one turn -----------------------------------------------------------------------------------------------

    def _turn_until(self, over: Callable[[], bool], deadline_s: float = float("inf")) -> None:
        while not over() and time.monotonic() < deadline_s:
            self._turn(_TICK_S)

    def _turn(self, wait_s: float) -> None:
        for key, _ in self._selector.select(min(wait_s, self._faults.left_s())):
            running: RunningProcess = key.data
            if key.fd == running.child.fileno():
                self._on_end(running)
            elif running.process.node.name in self._running and not running.read_output():
                self._selector.unregister(key.fileobj)
        now_s = self._now_s()
        for running in self._running.values():
            self._pass_on(running, now_s)
        self._faults.fire()
        for node in self._returning.difference(self._running):
            self._returning.discard(node)
            self._start_again(node)
        if time.monotonic() >= self._status_at_s:
            self._status_at_s = time.monotonic() + _STATUS_S
            self._report_status(now_s)

    def _pass_on(self, running: RunningProcess, now_s: float, last: bool = False) -> None:
        for line in running.new_events(now_s, last):
            self._faults.take(line)
            self._report(line)

    def _on_end(self, running: RunningProcess) -> None:
        now_s = self._now_s()
        node = running.process.node.name
        for descriptor in running.descriptors:
            with contextlib.suppress(KeyError):  # its output may have ended before
                self._selector.unregister(descriptor)
        code = running.wait()
        self._pass_on(running, now_s, last=True)
        running.close(now_s)
        del self._running[node]
        self._report({"kind": "final", "t": now_s, "node": node})  # so that no node waits for rounds of this one
        expected = self._stopping or node in self._faults.killed
        killer = self._kills.killer() if code == -signal.SIGKILL else ""
        if code and not expected:
            self._failed.append((running.process, code, killer))
            self._fail_at_s = min(self._fail_at_s, time.monotonic() + _CAUSE_GRACE_S)

    def _is_over(self) -> bool:
        """Return whether the run has failed or waits for no more processes. Raise ``RunFailed`` after the timeout."""
        if time.monotonic() >= self._fail_at_s:
            return True
        coming_back = {node for node in self._faults.killed if self._faults.effects.returns(node)}
        due = [node for node, process in self._by_node.items() if process.ends_run]
        if not any(node in self._running or node in coming_back for node in due):
            return True
        if time.monotonic() > self._deadline_s:
            raise RunFailed(self._late())
        return False

    def _late(self) -> str:
        running = ", ".join(f"{node} ({running.process.argv[0]})" for node, running in self._running.items())
        cure = "" if self._program.ends != "all" else "; where the first is a server, write 'ends: others'"
        return (
            f"the program has not ended within workload.timeout, {self._program.timeout_s:g} s; still running: "
            f"{running}{cure}"
        )

    def _report_status(self, now_s: float) -> None:
        for node, running in self._running.items():
            self._report(running.status(now_s) | {"node": node})
        # All traffic of a data centre is reported for its first node, even if the process of that node has ended.
        first = {node.data_center: node.name for node in reversed(self._plan.nodes)}
        for site, moved in self._hosts.traffic().items():
            if site in first:
                sums = {"wan_up_bytes": moved["up"], "wan_down_bytes": moved["down"]}
                self._report({"kind": "status", "t": now_s, "node": first[site], **sums})

    # ---- ending -------------------------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        self._stopping = True
        for running in self._running.values():
            running.child.send_signal(signal.SIGTERM)  # the process around the program passes the signal on

    def _signal_node(self, node: str, number: signal.Signals) -> bool:
        """Send a fault's signal to the program, not to the process around it."""
        running = self._running.get(node)
        if running is not None:
            first.signal_descendants(running.child.pid, number)
        return running is not None

    def _raise_failure(self) -> None:
        """Raise the first failure by a signal, which explains others best, else the first failure."""
        if self._failed:
            raise failure(*min(self._failed, key=lambda failed: failed[1] >= 0))

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._epoch_ns) / 1e9


def _listens(pid: int, port: int) -> bool:
    """Return whether a process listens on a TCP port in the network namespace of ``pid``. Sends no packet."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False
