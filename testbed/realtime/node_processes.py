"""The nodes of a run as processes of this machine: forked, signalled, read from, and reaped.

All are forked from one process that has already imported torch and read the data set. A forked child is ready within
milliseconds, whereas each fresh interpreter would need seconds of processor time. The parent must keep three rules:

* It runs no threads and no event loop when it forks: a child has only the thread that forked, and a lock that another
  thread held would stay locked for ever.
* It never initialises CUDA: a CUDA context does not survive a fork, and every child would fail with "Cannot
  re-initialize CUDA in forked subprocess".
* It collects and freezes its garbage (``gc.freeze``) before it forks: otherwise, a collection in a child would write to
  every object's header, and so copy all memory that the child shares with the parent.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

from testbed.garbage import frozen_garbage
from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import Child, Line, end_all, fork
from testbed.realtime.auth import new_credentials
from testbed.realtime.child import HELD_SIGNALS, Launch, run_child
from testbed.realtime.processor import GPU_TOKENS, Tokens
from testbed.realtime.setup import NodeSetup
from testbed.realtime.sockets import Endpoints
from testbed.results.failures import STACKS_SIGNAL, Cause
from testbed.results.oom_kills import OomKills

_LEAVE_S = 1.0  # time for nodes to end when the context is left


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """A child has ended.

    code    its exit status, or minus the signal that ended it
    report  its line of kind ``exit``, which says how it ends; empty if it sent none
    killer  who killed it, as far as the machine's kernel tells
    """

    node: str
    code: int
    report: Line
    killer: str = ""


@dataclass(slots=True)
class _Node:
    name: str
    child: Child
    report: Line = field(default_factory=dict)


def _is_on_gpu(node: NodePlan) -> bool:
    return node.role == "worker" and node.device.kind != "cpu"


class Processes(Protocol):
    """The running nodes of a run, on any machines. ``NodeProcesses`` implements this for nodes on this machine."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def __contains__(self, node: str) -> bool: ...
    def __len__(self) -> int: ...
    def start(self, nodes: Iterable[str], training_since_s: float | None = None) -> None: ...
    def wait(self, timeout_s: float) -> Iterator[Line | ProcessEnd]: ...
    def send_signal(self, node: str, number: signal.Signals) -> bool: ...
    def send_signal_to_all(self, number: signal.Signals) -> None: ...
    def explain(self, node: str, code: int) -> str: ...
    def ask_for_stacks(self, node: str) -> bool: ...
    def hung(self, node: str, why: str) -> str: ...


class NodeProcesses:
    """The running children, by node; leaving the context ends them. ``wake``: an eventfd that ends ``wait`` early."""

    def __init__(self, plan: Plan, launch: Launch, epoch_ns: int, wake: int) -> None:
        self._plan = plan
        self._launch = launch
        self._epoch_ns = epoch_ns
        self._wake = wake
        self._credentials = launch.credentials or new_credentials(plan.transport.tls)
        self._endpoints = launch.endpoints or Endpoints(plan, in_namespaces=launch.enter is not None)
        self._kills = OomKills.now()
        self._absent = frozenset(plan.late_comers) if launch.absent is None else launch.absent
        self._tokens = launch.core_tokens or Tokens.make(launch.cores, len(plan.nodes))
        first = self._tokens.holder
        self._number = {node.name: number for number, node in enumerate(plan.nodes, first)}
        used = {node.device.index for node in plan.nodes if _is_on_gpu(node)}
        self._gpu_tokens = {index: Tokens.make(GPU_TOKENS, first + len(plan.nodes)) for index in sorted(used)}
        self._lifeline = os.pipe()  # children watch the read end, which reports end of file when this process ends
        self._running: dict[str, _Node] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Nodes still run here only after an error of the caller; they get time to write their records.
        end_all([running.child for running in self._running.values()], _LEAVE_S)
        self._running.clear()
        self._selector.close()
        self._endpoints.release()
        own = [] if self._launch.core_tokens else [self._tokens]
        for tokens in (*own, *self._gpu_tokens.values()):
            tokens.close()
        for descriptor in self._lifeline:
            os.close(descriptor)

    def __contains__(self, node: str) -> bool:
        return node in self._running

    def __len__(self) -> int:
        return len(self._running)

    # ---- start --------------------------------------------------------------------------------------------------

    def start(self, nodes: Iterable[str], training_since_s: float | None = None) -> None:
        """Fork ``nodes``. ``training_since_s``: when training began, if it has."""
        names = list(nodes)
        self._endpoints.open(names)
        try:
            with frozen_garbage():
                for name in names:
                    self._fork(self._plan.node(name), training_since_s)
        finally:
            self._endpoints.close()

    def _fork(self, node: NodePlan, since_s: float | None) -> None:
        parent = os.getpid()

        def body(progress: int) -> int:
            return run_child(
                node, self._launch, partial(self._setup, node, since_s), progress, self._lifeline[0], parent
            )

        # Signals that come before the child has set its own handlers stay pending until the child unblocks them.
        child = fork(body, hold=HELD_SIGNALS, close=(self._lifeline[1], *self._not_for(node)))
        running = self._running[node.name] = _Node(node.name, child)
        self._selector.register(child, selectors.EVENT_READ, running)
        self._selector.register(child.lines, selectors.EVENT_READ, running)

    def _setup(self, node: NodePlan, since_s: float | None) -> NodeSetup:
        return NodeSetup(
            plan=self._plan,
            name=node.name,
            addresses=self._endpoints.addresses,
            listener=self._endpoints.listener(node.name),
            credentials=self._credentials,
            epoch_ns=self._epoch_ns,
            tokens=self._tokens_of(node),
            limits=self._launch.limits,
            since_s=since_s,
            source=self._endpoints.source,
            beside=self._endpoints.beside,
            absent=self._absent,
        )

    def _tokens_of(self, node: NodePlan) -> Tokens:
        """Return the tokens that a step of ``node`` takes: one for a core, or its share of the tokens of a GPU."""
        number = self._number[node.name]
        device = node.device
        if not _is_on_gpu(node):
            return self._tokens.of(number)
        return self._gpu_tokens[device.index].of(number, max(1, round(device.share * GPU_TOKENS)))

    def _give_back(self, node: str) -> None:
        self._tokens_of(self._plan.node(node)).give_back(self._number[node])

    def _not_for(self, node: NodePlan) -> list[int]:
        """Return the parent's descriptors that the child does not need."""
        siblings = [
            number for running in self._running.values() for number in (running.child.fileno(), running.child.lines)
        ]
        return [*self._endpoints.others(node.name), *siblings, self._wake, self._selector.fileno()]

    # ---- watch --------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> Iterator[Line | ProcessEnd]:
        """Yield lines and ends of children as soon as there are any; none if ``timeout_s`` passes first."""
        for key, _ in self._selector.select(timeout_s):
            running: _Node | None = key.data
            if running is None:
                os.eventfd_read(self._wake)
            elif running.name in self._running and key.fd == running.child.lines:
                yield from self._read(running)
            elif running.name in self._running:
                yield from self._reap(running)

    def send_signal(self, node: str, number: signal.Signals) -> bool:
        """Send a signal; return whether the node was running."""
        running = self._running.get(node)
        if running is not None:
            running.child.send_signal(number)
            if number == signal.SIGSTOP:  # a stopped node does not compute, so others may use its core
                self._give_back(node)
        return running is not None

    def send_signal_to_all(self, number: signal.Signals) -> None:
        for node in self._running:
            self.send_signal(node, number)

    def fileno(self) -> int:
        """Return a descriptor that is readable when ``wait`` would return at once."""
        return self._selector.fileno()

    # ---- scripts ------------------------------------------------------------------------------------------------

    def explain(self, node: str, code: int) -> str:
        """Return why the script of a node ended the process without a report; empty for nodes without a script."""
        files = self._launch.failures
        return files.explain(node, code, self._kills)[1] if files else ""

    def ask_for_stacks(self, node: str) -> bool:
        """Signal a running node to write down the stacks of its script. Return whether it runs a script."""
        files = self._launch.failures
        asked = files is not None and files.hidden(node, "dump").exists()
        return asked and self.send_signal(node, STACKS_SIGNAL)

    def hung(self, node: str, why: str) -> str:
        """Return where the script of a silent node stands, by its stacks (``ask_for_stacks``), and save this cause."""
        files = self._launch.failures
        if files is None:
            return ""
        cause = Cause(files.stands(node), f"NodeLost: {why}", files.dump(node))
        files.keep(node, cause)
        return str(cause)

    def _read(self, running: _Node) -> Iterator[Line]:
        """Read once. Raise ``BlockingIOError`` if the pipe is empty and still open."""
        lines = running.child.read()
        if lines is None:
            self._selector.unregister(running.child.lines)
            return
        for line in lines:
            if line["kind"] == "exit":
                running.report = line
            else:
                yield line

    def _reap(self, running: _Node) -> Iterator[Line | ProcessEnd]:
        child = running.child
        with contextlib.suppress(BlockingIOError):  # a process forked by a script may keep the pipe open
            while child.lines in self._selector.get_map():
                yield from self._read(running)
        if child.lines in self._selector.get_map():
            self._selector.unregister(child.lines)
        self._selector.unregister(child)
        code = child.close()
        del self._running[running.name]
        self._give_back(running.name)
        killer = self._kills.killer() if code == -signal.SIGKILL else ""
        yield ProcessEnd(running.name, code, running.report, killer)
