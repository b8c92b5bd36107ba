"""All nodes of a run as processes of this machine, forked from one warm process and watched to their end.

Torch is imported once, by the parent; a child is a node within milliseconds. The run's secret reaches the children by
inherited memory. When one node fails, the others are ended, and the error names the first cause. No child outlives its
parent, whatever ends it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import Interrupted, NodeLost, RunFailed, TestbedError, WaitTimeout
from testbed.plan.fault_clock import FaultClock, expendable, late_comers, needed_with
from testbed.plan.model import NodePlan, Plan, monitor_of
from testbed.realtime.auth import new_credentials
from testbed.realtime.child import HELD_SIGNALS, ChildSpec, live
from testbed.realtime.faults import FaultInjector, OnFault
from testbed.realtime.fleet_status import FleetStatus, NodeExit, first_cause
from testbed.realtime.heartbeat import PeerLost
from testbed.realtime.network import ConnectionLimits
from testbed.realtime.node import STATUS_INTERVAL_S, AnyRole, NodeSetup
from testbed.realtime.processor import Tokens
from testbed.realtime.sockets import Address, listen
from testbed.results.progress import Progress

# After the first failure, this long is waited for exits that explain it better.
_CAUSE_GRACE_S = 0.25
_KILL_AFTER_S = 3.0
_TICK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the nodes of a run are brought up.

    make_role   what a node does; called in the node's own process
    enter       called first thing in each child: into its network namespace. Then addresses and ports are the Plan's
                and each child binds its own; without it, the nodes meet on 127.0.0.1, on ports that the kernel chooses
    cores       how many training steps may really compute at one time
    epoch_ns    the run's start on CLOCK_MONOTONIC, from which all times count; default: when ``run`` is called
    due         which faults have yet to happen; ``None``: all of the Plan's
    on_fault    is told of each when it happens
    """

    make_role: Callable[[Plan, NodePlan], AnyRole]
    event_directory: Path
    enter: Callable[[NodePlan], None] | None = None
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    epoch_ns: int | None = None
    due: FaultClock | None = None
    on_fault: OnFault = lambda due, now_s: None


@contextlib.contextmanager
def _signals_call(stop: Callable[[str], None]) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM do nothing but call ``stop``: an exception out of nowhere would tear our books.

    Only the main thread gets signals; elsewhere this changes nothing.
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


@dataclass(slots=True)
class _Child:
    node: str
    pid: int
    descriptor: int  # of its process
    progress: int
    text: bytearray = field(default_factory=bytearray)
    last_words: dict[str, Any] = field(default_factory=dict)


class Fleet:
    """One run. ``exits``, in order of ending, fills up while ``run`` runs; ``wait_graph`` is there at its end.

    To be used in the main thread of a process that has no event loop running and has not used torch's threads.
    """

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self._plan, self._launch = plan, launch
        self._children: dict[str, _Child] = {}
        self._number = {node.name: number for number, node in enumerate(plan.nodes)}
        self.exits: list[NodeExit] = []
        self.wait_graph = ""
        self._verdict: TestbedError | None = None  # why we ended them, if no node's own failure is why
        self._ending = False  # all have been told to end
        self._stop_at_s = self._kill_at_s = float("inf")
        self._goes_on, self._monitor = plan.recovery.on_failure == "continue", monitor_of(plan)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoch_ns = launch.epoch_ns or time.monotonic_ns()
        self._faults = FaultInjector(
            launch.due or FaultClock(plan), self._epoch_ns, self._signal, self._revive, launch.on_fault
        )

    def run(self, on_progress: Progress = lambda line: None) -> list[NodeExit]:
        """Start all nodes and stay until the last has ended; ``on_progress`` gets their lines as they come.

        Raises the first cause (``RunFailed``, ``WaitTimeout``, …) if a node failed, ``Interrupted`` after ``stop``.
        """
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._started_s = time.monotonic()
        self._standing = FleetStatus(self._started_s)
        self._on_progress = on_progress
        with _signals_call(self.stop):
            try:
                self._start()
                while self._children:
                    self._turn()
            finally:
                self._close()
        return self._outcome()

    def stop(self, reason: str) -> None:
        """End all nodes soon, or at once if called again; ``run`` then raises ``Interrupted``.

        May be called from a signal handler or another thread. ``run`` calls it at SIGINT and SIGTERM.
        """
        if self._ending:
            self._kill_at_s = 0.0
        self._give_up(Interrupted(f"the run was ended: {reason}"))
        os.eventfd_write(self._wake, 1)

    def _outcome(self) -> list[NodeExit]:
        cause = first_cause(self.exits)
        self.wait_graph = self._standing.wait_graph()
        error = self._verdict or (cause and cause.error())
        if not error:
            return self.exits
        if isinstance(error, WaitTimeout) and self.wait_graph:
            error.add_note(self.wait_graph)
        raise error

    # ---- start --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        local = self._launch.enter is None
        self._listeners = {node.name: listen(("127.0.0.1", 0)) for node in self._plan.nodes} if local else {}
        self._make_setup = self._setups()
        self._tokens = Tokens.make(self._launch.cores, len(self._plan.nodes))
        self._life = os.pipe()
        gc.collect()  # of the attempt before, if this is a restart: thawed, it would be looked at once in a long while
        gc.freeze()  # so that a collection in a child does not touch, and thereby copy, what it inherited
        try:
            late = late_comers(self._plan)
            for node in self._plan.nodes:
                if node.name not in late:
                    self._fork(node)
        finally:
            gc.unfreeze()
            self._close_listeners()

    def _close_listeners(self) -> None:
        for sock in self._listeners.values():
            sock.close()
        self._listeners.clear()

    def _revive(self, name: str) -> None:
        """Start a node again that the run has gone on without, with those that ended because of it."""
        if not self._goes_on or self._ending or self._monitor not in self._children:
            return
        for each in needed_with(self._plan, name):
            if each not in self._children:
                self._faults.killed.discard(each)
                if self._launch.enter is None:
                    self._listeners[each] = listen(self._addresses[each])
                self._fork(self._plan.node(each))
                self._close_listeners()

    def _setups(self) -> Callable[[NodePlan], NodeSetup]:
        listeners = self._listeners
        addresses: dict[str, Address] = {
            node.name: listeners[node.name].getsockname() if listeners else (node.address or "", node.port)
            for node in self._plan.nodes
        }
        self._addresses, credentials = addresses, new_credentials(self._plan.transport.tls)

        def make(node: NodePlan) -> NodeSetup:
            listener = listeners[node.name] if node.name in listeners else listen(addresses[node.name])
            return NodeSetup(
                plan=self._plan, name=node.name, addresses=addresses, listener=listener, credentials=credentials,
                epoch_ns=self._epoch_ns, tokens=self._tokens.of(self._number[node.name]), limits=self._launch.limits,
                since_s=self._faults.training_since_s,
            )  # fmt: skip

        return make

    def _fork(self, node: NodePlan) -> None:
        progress, parent = os.pipe(), os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)  # the child takes them when it can
        pid = os.fork()
        if pid == 0:
            live(
                ChildSpec(
                    node=node, make_setup=lambda: self._make_setup(node),
                    make_role=lambda node: self._launch.make_role(self._plan, node),
                    enter=self._launch.enter or (lambda node: None), event_directory=self._launch.event_directory,
                    progress=progress[1], life=self._life[0], parent=parent,
                    close=(progress[0], self._life[1], *self._not_for(node)),
                )
            )  # fmt: skip
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(progress[1])
        child = self._children[node.name] = _Child(node.name, pid, os.pidfd_open(pid), progress[0])
        self._selector.register(child.descriptor, selectors.EVENT_READ, child)
        self._selector.register(child.progress, selectors.EVENT_READ, child)

    def _not_for(self, node: NodePlan) -> list[int]:
        """The parent's descriptors that are no business of this node."""
        others = [sock.fileno() for name, sock in self._listeners.items() if name != node.name]
        siblings = [number for child in self._children.values() for number in (child.descriptor, child.progress)]
        return [*others, *siblings, self._wake, self._selector.fileno()]

    # ---- watch --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for key, _ in self._selector.select(min(_TICK_S, self._faults.left_s())):
            if key.data is None:
                os.eventfd_read(self._wake)
            elif key.fd == key.data.progress:
                self._read(key.data)
            else:
                self._reap(key.data)
        self._faults.fire()
        now_s = time.monotonic()
        self._look_for_standstill(now_s)
        if now_s >= self._stop_at_s:
            self._ending = True
            self._signal_all(signal.SIGTERM)
            self._stop_at_s, self._kill_at_s = float("inf"), now_s + _KILL_AFTER_S
        if now_s >= self._kill_at_s:
            self._signal_all(signal.SIGKILL)
            self._kill_at_s = float("inf")

    def _look_for_standstill(self, now_s: float) -> None:
        timeouts = self._plan.timeouts
        if now_s - self._started_s > timeouts.run_deadline_s:
            self._give_up(RunFailed(f"the run has not ended within its deadline of {timeouts.run_deadline_s:g} s"))
        # A node's own wait knows best what it waited for; so it gets the time to say so.
        limit_s = timeouts.step_deadline_s + 4 * STATUS_INTERVAL_S
        if now_s - self._standing.advanced_at_s > limit_s:
            node, what, since_s = self._standing.longest_wait() or ("the run", "any node to advance", 0.0)
            self._give_up(WaitTimeout(node, what, since_s, limit_s))

    def _give_up(self, verdict: TestbedError) -> None:
        if not self._ending and self._verdict is None:
            self._verdict = verdict
            self._end_all(0.0)

    def _end_all(self, after_s: float) -> None:
        self._stop_at_s = min(self._stop_at_s, time.monotonic() + after_s)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children.values():  # not reaped yet, so the id is still theirs
            signal.pidfd_send_signal(child.descriptor, number)

    def _signal(self, node: str, number: signal.Signals) -> bool:
        """Whether it still ran."""
        child = self._children.get(node)
        if child is not None:
            signal.pidfd_send_signal(child.descriptor, number)
        return child is not None

    def _read(self, child: _Child) -> None:
        data = os.read(child.progress, 1 << 16)
        if not data:
            self._selector.unregister(child.progress)
            return
        child.text += data
        *lines, child.text = child.text.split(b"\n")
        for text in lines:
            line = json.loads(text)
            if line["kind"] == "exit":
                child.last_words = line
            else:
                self._note(line)

    def _note(self, line: dict[str, Any]) -> None:
        if line["kind"] == "status":
            self._standing.note(line, time.monotonic())
        self._faults.take(line)
        self._on_progress(line)

    def _reap(self, child: _Child) -> None:
        while child.progress in self._selector.get_map():  # its last words; ends, as it has closed the pipe
            self._read(child)
        _, status = os.waitpid(child.pid, 0)
        wait = child.last_words.get("wait")
        words = {name: child.last_words.get(name, "") for name in ("cause", "message", "traceback")}
        code = os.waitstatus_to_exitcode(status)
        stopped = self._ending or self._may_go(child.node, code, words["cause"])
        end = NodeExit(child.node, code, stopped, **words, wait=tuple(wait) if wait else None,
                       fault=child.node in self._faults.killed)  # fmt: skip
        self.exits.append(end)
        self._standing.end(end)
        self._tokens.give_back(self._number[child.node])
        if end.failed or (self._goes_on and child.node == self._monitor):
            self._end_all(_CAUSE_GRACE_S)  # whoever is still there then has missed the end
        self._selector.unregister(child.descriptor)
        os.close(child.descriptor)
        os.close(child.progress)
        del self._children[child.node]

    def _may_go(self, node: str, code: int, cause: str) -> bool:
        """Whether the run goes on without that node, which was killed or has lost the others."""
        return node in expendable(self._plan) and (code < 0 or cause in (NodeLost.__name__, PeerLost.__name__))

    def _close(self) -> None:
        """Leave nothing behind, whatever has happened."""
        self._signal_all(signal.SIGKILL)
        for child in list(self._children.values()):
            os.waitpid(child.pid, 0)
            os.close(child.descriptor)
            os.close(child.progress)
        self._children.clear()
        self._selector.close()
        self._tokens.close()
        for descriptor in self._life:
            os.close(descriptor)
        os.close(self._wake)
