"""The forked process of one node, from the fork to its exit. It ends when its parent ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from testbed.axes import place_in_code
from testbed.errors import Interrupted, TestbedError, WaitTimeout, of_os
from testbed.garbage import collect_after_fork
from testbed.plan.fault_clock import FaultClock
from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import die_with
from testbed.realtime.auth import Credentials
from testbed.realtime.faults import LEAVE_SIGNAL, OnFault
from testbed.realtime.heartbeat import PeerLost
from testbed.realtime.hold import Hold
from testbed.realtime.node import AnyRole, run_node
from testbed.realtime.node_loop import node_loop, run_before_other_programs
from testbed.realtime.processor import Tokens
from testbed.realtime.setup import ConnectionLimits, NodeSetup
from testbed.realtime.sockets import Endpoints
from testbed.realtime.world import RealWorld
from testbed.results.events import EventLog
from testbed.results.failures import FailureFiles

WORKER_NICENESS = 5  # servers and schedulers must not wait for cores that workers keep busy
_UNEXPECTED = 1
HELD_SIGNALS = frozenset({signal.SIGTERM, LEAVE_SIGNAL})
"""The parent blocks these while it forks; else its handlers could run in the child before the child sets its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the nodes of a run are started.

    Attributes:
        make_role: Makes the role of a node; called in the node's own process.
        event_directory: The directory of the nodes' event logs.
        enter: Called first in each child, to enter its network namespace. Each child then binds the address and port
            that the plan gives it. Without ``enter``, nodes meet on 127.0.0.1, on ports that the kernel chooses.
        cores: How many training steps may compute at the same time.
        core_tokens: The tokens for the cores, if this run shares them with other runs, as the run's first node sees
            them; default: tokens of this run alone.
        limits: Bounds on connections.
        epoch_ns: The run's start on CLOCK_MONOTONIC, from which all times count; default: when ``Fleet`` is made.
        due: The faults that are still to happen; None means all faults of the plan.
        absent: The nodes that are not started with the run; None means the nodes that join later.
        on_fault: Called for each fault when it happens.
        failures: The files that failed scripts leave behind; None in a run without scripts.
        new_loop: Makes the event loop of a node.
        realtime: Whether event loops run before all other programs of the machine, as the helpers of an emulation do.
        hold: Work to do while nodes start, before training begins; None: no work.
        endpoints: Where nodes listen and reach each other; default: as described for ``enter``.
        credentials: The credentials of the run; default: new ones, which only these nodes have.
    """

    make_role: Callable[[Plan, NodePlan], AnyRole]
    event_directory: Path
    enter: Callable[[NodePlan], None] | None = None
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    core_tokens: Tokens | None = None
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    epoch_ns: int | None = None
    due: FaultClock | None = None
    absent: frozenset[str] | None = None
    on_fault: OnFault = lambda due, now_s: None
    failures: FailureFiles | None = None
    new_loop: Callable[[], asyncio.AbstractEventLoop] = node_loop
    realtime: bool = False
    hold: Hold | None = None
    endpoints: Endpoints | None = None
    credentials: Credentials | None = field(default=None, repr=False)


def run_child(
    node: NodePlan, launch: Launch, make_setup: Callable[[], NodeSetup], progress: int, lifeline: int, parent: int
) -> int:
    """Run the node to its end; return the exit code. To be called in the child right after the fork.

    make_setup  called after ``launch.enter``, so that it opens sockets in the node's own network namespace
    progress    write end of the child's pipe to its parent
    lifeline    read end of a pipe whose write end only the parent holds: end of file means that the parent has ended
    parent      process id of the parent
    """
    try:
        _prepare(node)
        if launch.enter is not None:
            launch.enter(node)
        die_with(parent)  # again, as entering a namespace may have cleared it
        if launch.realtime:
            run_before_other_programs(node.role)
        with asyncio.Runner(loop_factory=launch.new_loop) as runner:
            runner.run(_main(node, launch, make_setup, progress, lifeline))
        # A script may end the process with status 0, too; this line tells a good end from that.
        _write_line(progress, {"kind": "exit", "node": node.name, "code": 0})
        return 0
    except asyncio.CancelledError:
        return Interrupted.exit_code
    except BaseException as error:
        line = _exit_line(node.name, error)
        _write_line(progress, line)
        return int(line["code"])


def _prepare(node: NodePlan) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGWINCH):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the run's secret
    torch.set_num_threads(1)
    collect_after_fork()
    if node.role == "worker":
        os.nice(WORKER_NICENESS)


async def _main(
    node: NodePlan, launch: Launch, make_setup: Callable[[], NodeSetup], progress: int, lifeline: int
) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    _set_forks_apart(progress, lifeline)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    loop.add_reader(lifeline, lambda: os._exit(_UNEXPECTED))
    log = EventLog(launch.event_directory, node.name, many=True)  # each status line of the node flushes it
    try:
        setup = make_setup()
        role = launch.make_role(setup.plan, node)
        if launch.hold is not None and node.role == "scheduler":
            role = _held(role, launch.hold)
        await run_node(setup, role, log, lambda line: _write_line(progress, line), _handle_leave)
    except Exception as error:  # reported at once: the process may still crash in a library while the loop closes
        _write_line(progress, _exit_line(node.name, error))
        raise
    finally:
        log.close()


def _held(role: AnyRole, hold: Hold) -> AnyRole:
    """Return the scheduler's role, delayed until ``hold`` is over. Messages for it wait in its inbox."""

    async def run(world: RealWorld) -> Any:
        await hold.over()
        return await role(world)

    return run


def _set_forks_apart(*descriptors: int) -> None:
    """Detach each process that a user's script forks: signals to that process must not reach the node's event loop.

    Its own children inherit the detached state. ``descriptors`` are closed in the forked process.
    """
    left = False

    def hold(how: int) -> None:  # until a child sets its own handlers, it has those of the node
        if not left:
            signal.pthread_sigmask(how, HELD_SIGNALS)

    def leave() -> None:
        nonlocal left
        if not left:
            left = True
            signal.set_wakeup_fd(-1)
            for number in HELD_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
            for descriptor in descriptors:
                os.close(descriptor)

    os.register_at_fork(
        before=lambda: hold(signal.SIG_BLOCK), after_in_parent=lambda: hold(signal.SIG_UNBLOCK), after_in_child=leave
    )


def _handle_leave(world: RealWorld) -> None:
    """Pass requests to leave on to the role, also one that came before this call."""
    asyncio.get_running_loop().add_signal_handler(LEAVE_SIGNAL, world.request_leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {LEAVE_SIGNAL})


def _write_line(descriptor: int, line: dict[str, Any]) -> None:
    data = (json.dumps(line) + "\n").encode()
    with contextlib.suppress(BrokenPipeError):  # the parent has ended; this process is about to
        while data:
            data = data[os.write(descriptor, data) :]


def _exit_line(node: str, error: BaseException) -> dict[str, Any]:
    if isinstance(error, OSError):
        error = of_os(error) or error
    code = error.exit_code if isinstance(error, TestbedError) else _UNEXPECTED
    cause = type(error).__name__
    message = str(error)
    if not isinstance(error, TestbedError) and (place := place_in_code(error)):
        cause = f"{place}: {cause}"
    line: dict[str, Any] = {"kind": "exit", "node": node, "code": code, "cause": cause, "message": message}
    if isinstance(error, PeerLost):
        line["peer"] = error.peer
    if isinstance(error, WaitTimeout):
        line["wait"] = [error.node, error.waiting_for, error.since_s, error.deadline_s]
    elif not isinstance(error, TestbedError):
        line["traceback"] = "".join(traceback.format_exception(error))
    return line
