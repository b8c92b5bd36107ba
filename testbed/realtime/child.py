"""What happens inside a forked process, from the fork to its exit: one node, and nothing that outlives its parent."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from testbed.errors import Interrupted, TestbedError, WaitTimeout
from testbed.plan.model import NodePlan
from testbed.realtime.faults import LEAVE_SIGNAL
from testbed.realtime.node import AnyRole, NodeSetup, run_node
from testbed.realtime.world import RealWorld
from testbed.results.events import EventLog

_PR_SET_PDEATHSIG = 1
_WORKER_NICENESS = 5  # servers and schedulers must not wait for cores that workers keep busy
_UNEXPECTED = 1
HELD_SIGNALS = frozenset({signal.SIGTERM, LEAVE_SIGNAL})  # blocked at a fork: else the handlers of the parent hear them


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a child gets by the memory that it inherits.

    make_setup   called after ``enter``, so that what it opens lies in the node's own network namespace
    enter        the back end's way into that namespace
    progress     write end of this child's pipe to its parent
    life         read end of a pipe that only the parent can write to: its end is the parent's end
    close        the parent's descriptors, which are no business of a child
    """

    node: NodePlan
    make_setup: Callable[[], NodeSetup]
    make_role: Callable[[NodePlan], AnyRole]
    enter: Callable[[NodePlan], None]
    event_directory: Path
    progress: int
    life: int
    parent: int
    close: tuple[int, ...]


def live(birth: ChildSpec) -> NoReturn:
    """Be that node. Called in the child right after the fork; never returns."""
    code = _UNEXPECTED
    try:
        _prepare(birth)
        birth.enter(birth.node)
        _die_with(birth.parent)  # again: entering a namespace may have cleared it
        asyncio.run(_main(birth))
        code = 0
    except asyncio.CancelledError:
        code = Interrupted.exit_code
    except BaseException as error:
        code = error.exit_code if isinstance(error, TestbedError) else _UNEXPECTED
        _tell(birth.progress, _last_words(birth.node.name, error))
    finally:
        os._exit(code)  # not sys.exit: what the parent registered with atexit is the parent's


def _prepare(birth: ChildSpec) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGWINCH):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    _die_with(birth.parent)
    for descriptor in birth.close:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    if birth.node.role == "worker":
        os.nice(_WORKER_NICENESS)


def _die_with(parent: int) -> None:
    """SIGKILL when the parent's thread that forked ends; the ``life`` pipe covers what this does not."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_UNEXPECTED)


async def _main(birth: ChildSpec) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    loop.add_reader(birth.life, lambda: os._exit(_UNEXPECTED))
    log = EventLog(birth.event_directory, birth.node.name)
    try:
        role = birth.make_role(birth.node)
        await run_node(birth.make_setup(), role, log, lambda line: _tell(birth.progress, line), _hear_dismissal)
    finally:
        log.close()


def _hear_dismissal(world: RealWorld) -> None:
    """From now on; a signal that came before is taken now."""
    asyncio.get_running_loop().add_signal_handler(LEAVE_SIGNAL, world.dismissed)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {LEAVE_SIGNAL})


def _tell(descriptor: int, line: dict[str, Any]) -> None:
    data = (json.dumps(line) + "\n").encode()
    with contextlib.suppress(BrokenPipeError):  # the parent is gone, and so shall we be
        while data:
            data = data[os.write(descriptor, data) :]


def _last_words(node: str, error: BaseException) -> dict[str, Any]:
    line: dict[str, Any] = {"kind": "exit", "node": node, "cause": type(error).__name__, "message": str(error)}
    if isinstance(error, WaitTimeout):
        line["wait"] = [error.node, error.waiting_for, error.since_s, error.deadline_s]
    elif not isinstance(error, TestbedError):
        line["traceback"] = "".join(traceback.format_exception(error))
    return line
