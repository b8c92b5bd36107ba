"""The nodes of a run as processes of this machine: forked, signalled, read from, and reaped.

All are forked from one warm process, which has imported torch and read the data set: a forked child is a node within
milliseconds, where a fresh interpreter would need seconds of processor time each. Three rules follow for that parent:

* It runs no threads and no event loop when it forks: a child has only the thread that forked, and a lock that another
  thread held would stay locked for ever.
* It never initialises CUDA: a CUDA context does not survive a fork, and every child would fail with "Cannot
  re-initialize CUDA in forked subprocess".
* Its garbage is collected and frozen (``gc.freeze``) before it forks: a collection in a child would write to every
  object's header, and so copy all memory that is shared with the parent.

A child's end is seen through its pidfd. Unlike a process id, a pidfd can be polled with other descriptors, and never
comes to stand for another process: a signal sent through it reaches this child or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self

from testbed.garbage import frozen_garbage
from testbed.plan.fault_clock import late_comers
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.auth import new_credentials
from testbed.realtime.child import HELD_SIGNALS, Launch, run_child
from testbed.realtime.processor import GPU_TOKENS, Tokens
from testbed.realtime.setup import NodeSetup
from testbed.realtime.sockets import Endpoints
from testbed.results.failures import STACKS_SIGNAL, Cause
from testbed.results.oom_kills import OomKills

Line = dict[str, Any]

_LEAVE_S = 1.0  # that nodes have to end when the context is left


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """A child has ended.

    code    its exit status, or minus its signal
    report  its last line, empty if none
    killer  who killed it, as far as its machine's kernel tells
    """

    node: str
    code: int
    report: Line
    killer: str = ""


@dataclass(slots=True)
class _Process:
    node: str
    pid: int
    pidfd: int
    progress: int  # read end of the pipe for its lines
    text: bytearray = field(default_factory=bytearray)
    report: Line = field(default_factory=dict)


def _is_on_gpu(node: NodePlan) -> bool:
    return node.role == "worker" and node.device.kind != "cpu"


class Processes(Protocol):
    """The running nodes of a run, wherever they are: what ``NodeProcesses`` does for those of this machine."""

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
        self._plan, self._launch, self._epoch_ns, self._wake = plan, launch, epoch_ns, wake
        self._credentials = launch.credentials or new_credentials(plan.transport.tls)
        self._endpoints = launch.endpoints or Endpoints(plan, in_namespaces=launch.enter is not None)
        self._kills = OomKills.now()
        self._absent = frozenset(late_comers(plan)) if launch.absent is None else launch.absent
        self._number = {node.name: number for number, node in enumerate(plan.nodes)}
        self._tokens = Tokens.make(launch.cores, len(plan.nodes))
        used = {node.device.index for node in plan.nodes if _is_on_gpu(node)}
        self._gpu_tokens = {index: Tokens.make(GPU_TOKENS, len(plan.nodes)) for index in sorted(used)}
        self._lifeline = os.pipe()  # children watch the read end, which ends when this process does
        self._running: dict[str, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send_signal_to_all(signal.SIGTERM)  # after an error of the caller: nodes write what they have recorded
        end_s = time.monotonic() + _LEAVE_S
        for process in self._running.values():
            ended = select.poll()
            ended.register(process.pidfd, select.POLLIN)
            ended.poll(max(0.0, end_s - time.monotonic()) * 1e3)
        self.send_signal_to_all(signal.SIGKILL)
        for process in self._running.values():
            os.waitpid(process.pid, 0)
            os.close(process.pidfd)
            os.close(process.progress)
        self._running.clear()
        self._selector.close()
        self._endpoints.release()
        for tokens in (self._tokens, *self._gpu_tokens.values()):
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
        progress, parent = os.pipe(), os.getpid()
        # Signals that come between the fork and the child's own handlers stay pending until it unblocks them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                close = (progress[0], self._lifeline[1], *self._not_for(node))
                make_setup = partial(self._setup, node, since_s)
                run_child(node, self._launch, make_setup, progress[1], self._lifeline[0], parent, close)
        except OSError:  # too many processes
            os.close(progress[0])
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(progress[1])
        os.set_blocking(progress[0], False)
        process = self._running[node.name] = _Process(node.name, pid, os.pidfd_open(pid), progress[0])
        self._selector.register(process.pidfd, selectors.EVENT_READ, process)
        self._selector.register(process.progress, selectors.EVENT_READ, process)

    def _setup(self, node: NodePlan, since_s: float | None) -> NodeSetup:
        return NodeSetup(
            plan=self._plan, name=node.name, addresses=self._endpoints.addresses,
            listener=self._endpoints.listener(node.name), credentials=self._credentials, epoch_ns=self._epoch_ns,
            tokens=self._tokens_of(node), limits=self._launch.limits, since_s=since_s,
            source=self._endpoints.source, beside=self._endpoints.beside, absent=self._absent,
        )  # fmt: skip

    def _tokens_of(self, node: NodePlan) -> Tokens:
        """The view of those that steps of ``node`` take: one for a core, or its share of a GPU."""
        number, device = self._number[node.name], node.device
        if not _is_on_gpu(node):
            return self._tokens.of(number)
        return self._gpu_tokens[device.index].of(number, max(1, round(device.share * GPU_TOKENS)))

    def _give_back(self, node: str) -> None:
        self._tokens_of(self._plan.node(node)).give_back(self._number[node])

    def _not_for(self, node: NodePlan) -> list[int]:
        """The parent's descriptors that the child does not need."""
        siblings = [number for process in self._running.values() for number in (process.pidfd, process.progress)]
        return [*self._endpoints.others(node.name), *siblings, self._wake, self._selector.fileno()]

    # ---- watch --------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> Iterator[Line | ProcessEnd]:
        """Lines and ends of children, as soon as there are any; none if ``timeout_s`` passes first."""
        for key, _ in self._selector.select(timeout_s):
            process: _Process | None = key.data
            if process is None:
                os.eventfd_read(self._wake)
            elif process.node in self._running and key.fd == process.progress:
                yield from self._read(process)
            elif process.node in self._running:
                yield from self._reap(process)

    def send_signal(self, node: str, number: signal.Signals) -> bool:
        """Send a signal; returns whether the node was running."""
        process = self._running.get(node)
        if process is not None:
            signal.pidfd_send_signal(process.pidfd, number)
            if number == signal.SIGSTOP:  # it computes no more, so others may have its core
                self._give_back(node)
        return process is not None

    def send_signal_to_all(self, number: signal.Signals) -> None:
        for node in self._running:
            self.send_signal(node, number)

    def fileno(self) -> int:
        """A descriptor that is readable when ``wait`` has something."""
        return self._selector.fileno()

    # ---- scripts ------------------------------------------------------------------------------------------------

    def explain(self, node: str, code: int) -> str:
        """Return why a node ended that has not said so: what its script did, if it runs one."""
        files = self._launch.failures
        return files.explain(node, code, self._kills)[1] if files else ""

    def ask_for_stacks(self, node: str) -> bool:
        """Let a running node write down where its script stands, whatever holds it up. Return whether it runs one."""
        files = self._launch.failures
        asked = files is not None and files.hidden(node, "dump").exists()
        return asked and self.send_signal(node, STACKS_SIGNAL)

    def hung(self, node: str, why: str) -> str:
        """Return why a node had fallen silent that was asked for its stacks, and keep it."""
        files = self._launch.failures
        if files is None:
            return ""
        cause = Cause(files.stands(node), f"NodeLost: {why}", files.dump(node))
        files.keep(node, cause)
        return str(cause)

    def _read(self, process: _Process) -> Iterator[Line]:
        """Read once. Raise ``BlockingIOError`` if the pipe is empty and still open."""
        data = os.read(process.progress, 1 << 16)
        if not data:
            self._selector.unregister(process.progress)
            return
        process.text += data
        *lines, process.text = process.text.split(b"\n")
        for text in lines:
            line = json.loads(text)
            if line["kind"] == "exit":
                process.report = line
            else:
                yield line

    def _reap(self, process: _Process) -> Iterator[Line | ProcessEnd]:
        with contextlib.suppress(BlockingIOError):  # a process that a script has forked may keep the pipe open
            while process.progress in self._selector.get_map():
                yield from self._read(process)
        if process.progress in self._selector.get_map():
            self._selector.unregister(process.progress)
        _, status = os.waitpid(process.pid, 0)
        self._selector.unregister(process.pidfd)
        os.close(process.pidfd)
        os.close(process.progress)
        del self._running[process.node]
        self._give_back(process.node)
        code = os.waitstatus_to_exitcode(status)
        killer = self._kills.killer() if code == -signal.SIGKILL else ""
        yield ProcessEnd(process.node, code, process.report, killer)
