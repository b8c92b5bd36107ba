"""The host process of a run: brings the back end up, runs the nodes, reports to the launcher.

``python -m testbed.execution.host DIRECTORY`` runs the plan in DIRECTORY/plan.json. Progress goes to standard output as
JSON lines; the last line of each job is its outcome. A line on standard input is a request to stop. End of file there
means that the launcher has ended, and ends the host as well. ``… host - MODULE …`` begins to import these modules; the
first line on standard input is then the directory, as JSON.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from testbed.axes import place_in_code
from testbed.environment import allow_descriptors
from testbed.errors import Diverged, Interrupted, RunFailed, ScenarioError, TestbedError, WaitTimeout, of_os
from testbed.execution import early_imports
from testbed.execution.capacity import usable_cores
from testbed.execution.compiler import leave_out_compiler, may_compile
from testbed.execution.deployment import Deployment, Ground, alone, read_ground
from testbed.execution.resume import FOLDER
from testbed.execution.scripts import is_scripted
from testbed.execution.session import INTERRUPTED, LOG, TOLD_LATER, SessionResult
from testbed.plan.code import check_code
from testbed.plan.model import Plan
from testbed.processes.child import close_in_children, die_with
from testbed.results.events import HAS_LEFT
from testbed.results.progress import Progress

LAUNCHER_GONE = 9
_OF_EVERY_NODE = frozenset({"start", "round", "final"})
_FLUSH_INTERVAL_S = 0.02
_CHUNK_BYTES = 1 << 16


def main(arguments: Sequence[str]) -> int:
    """Run to the end; return the exit code. ``arguments``: the arguments of the command."""
    allow_descriptors()
    gc.disable()  # nothing is garbage yet
    if arguments[0] == TOLD_LATER:
        die_with(os.getppid())  # a parent that has ended before this is noticed by end of file on standard input
        directory = _told_directory(arguments[1:])
    else:
        directory = Path(arguments[0])
    _listen_to_launcher()
    events = _Events()
    ground = replace(read_ground(directory, events.report), cores=usable_cores())
    plan = ground.plan
    if not any(is_scripted(each.plan) for each in ground.deployments):  # the watch of a script has a file for crashes
        faulthandler.enable()  # the stacks of a crash go to the log
    if plan.exact is None:  # in an exact run, listing a directory on the path would take virtual time
        sys.path.append(str(Path.cwd()))  # last (see ``own_interpreter``): a technique may be in a module there
    events.report_to = _reporter(waits=plan.facilities.in_virtual_time)
    if not plan.is_emulated:  # an emulated run finishes imports while it brings its network up
        early_imports.finish()
        if not any(may_compile(each.plan) for each in ground.deployments):
            leave_out_compiler()
    gc.enable()
    outcomes = attempt_jobs(ground)
    for deployment, outcome in zip(ground.deployments, outcomes, strict=True):
        deployment.report({"kind": "outcome", **asdict(outcome)})
    return max(outcome.exit_code for outcome in outcomes)


def _told_directory(modules: Iterable[str]) -> Path:
    """Begin to import modules; return the run's directory once the launcher sends it. Errors then go to its log."""
    early_imports.begin(modules)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # one byte at a time, as a request to stop may follow the line
        if not byte:
            os._exit(LAUNCHER_GONE)
        line += byte
    directory = Path(json.loads(line))
    with open(directory / LOG, "ab", buffering=0) as log:
        os.dup2(log.fileno(), 2)
    return directory


def attempt(plan: Plan, directory: Path, report: Progress, cores: int = 1) -> SessionResult:
    """Run the plan in this process; every error becomes an outcome. ``cores``: see ``Ground``."""
    return attempt_jobs(replace(alone(plan, directory, report), cores=cores))[0]


def attempt_jobs(ground: Ground) -> list[SessionResult]:
    """Run all jobs in this process. An error becomes the outcome of its job, or of all jobs if it is the network's."""
    watched = [_Watched(each) for each in ground.deployments]
    try:
        for deployment in ground.deployments:
            check_code(deployment.plan)
        run_jobs = import_module(f"testbed.execution.{ground.plan.back_end}").run_jobs  # a run needs one of them
        followed = replace(ground, deployments=tuple(each.watching for each in watched))
        errors: Sequence[BaseException | None] = run_jobs(followed)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # the user's code may call sys.exit
        errors = [error] * len(watched)
    return [each.outcome(error) for each, error in zip(watched, errors, strict=True)]


class _Watched:
    """A job and the nodes that it has lost. ``watching``: its deployment, with a report that notes these nodes."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._lost: dict[str, None] = {}
        resumed = deployment.directory / FOLDER  # the checkpoints of an earlier run
        self._resumed = resumed if resumed.is_dir() else None
        self.watching = replace(deployment, report=self._take)

    def _take(self, event: dict[str, Any]) -> None:
        if event["kind"] == "epoch" and event.get("message") != HAS_LEFT:  # as the scenario wants it
            for node in event["targets"].split(", "):
                if event["begins"]:
                    self._lost.pop(node, None)
                else:
                    self._lost[node] = None
        self._deployment.report(event)

    def outcome(self, error: BaseException | None) -> SessionResult:
        """Return how the job has ended. ``error``: the error of its first failed node, or None."""
        if isinstance(error, Interrupted | KeyboardInterrupt):
            place = place_in_code(error)
            return replace(INTERRUPTED, message=f"{INTERRUPTED.message} (it was at {place})") if place else INTERRUPTED
        if isinstance(error, TestbedError):
            return self._failed(error)
        if error is not None:
            if isinstance(error, OSError) and (ours := of_os(error, self._deployment.directory)) is not None:
                return SessionResult("failed", str(ours), ours.exit_code)
            traceback.print_exception(error)
            return _unforeseen(error, self._resumed, self._deployment.plan)
        if self._lost:
            return SessionResult("reduced", f"continued without {', '.join(self._lost)}", 0)
        return SessionResult("done", "", 0)

    def _failed(self, error: TestbedError) -> SessionResult:
        notes = "\n".join(getattr(error, "__notes__", ()))
        status = "diverged" if isinstance(error, Diverged) else "failed"
        where = came = ""
        resumed = self._resumed
        if resumed and isinstance(error, ScenarioError) and str(resumed) not in str(error):
            where = f"{resumed}: "
        elif resumed and isinstance(error, WaitTimeout):
            came = f"\nthe run went on from a checkpoint in {resumed}"
        return SessionResult(status, f"{where}{error}{came}\n{notes}".strip(), error.exit_code)


def _unforeseen(error: BaseException, resumed: Path | None, plan: Plan) -> SessionResult:
    about = f"{type(error).__name__}: {error}"
    outside = dict.fromkeys(file.kind for file in plan.code)
    if place := place_in_code(error):
        return SessionResult("failed", f"{place}: {about}", RunFailed.exit_code)
    told = f"{about} (an error in testbed itself; see host.log)"
    if outside:
        told = f"{about} (an error in {', '.join(outside)}, or in testbed itself; see host.log, and `testbed check`)"
    if resumed is not None:
        why = "it was changed, or testbed itself is wrong; see host.log"
        told = f"{resumed}: the run cannot be resumed from there ({about}): {why}"
    return SessionResult("failed", told, 1)


class _Events:
    """Passes events to ``report_to``, which is known once the run's directory has been read."""

    report_to: Progress

    def report(self, event: dict[str, Any]) -> None:
        self.report_to(event)


def _reporter(waits: bool) -> Progress:
    """Return a report that passes events on to the launcher. ``waits``: whether it waits until the launcher reads.

    In real time it must not wait: if this process stood still while the launcher is stopped (Ctrl-Z), or writes to a
    stopped terminal (Ctrl-S), waits of nodes would pass their deadlines. Events that cannot be sent at once are sent
    later, except the status lines that nodes send twice a second, which are dropped.
    """
    # Standard output carries only the protocol; anything that a library prints goes to the log.
    channel = os.dup(1)
    os.dup2(2, 1)
    # The launcher reads to the end of file, and a process that a script has forked may outlive this one.
    close_in_children(channel)
    if not waits:
        os.set_blocking(channel, False)

    unsent = bytearray()
    flushed_s = 0.0
    is_full = False

    def report(event: dict[str, Any]) -> None:
        nonlocal flushed_s, is_full
        if event["kind"] == "outcome":  # nothing follows
            os.set_blocking(channel, True)
        if not is_full or event["kind"] != "status":
            unsent.extend((json.dumps(event) + "\n").encode())
        now_s = time.monotonic()
        # Events that every one of thousands of nodes reports are sent together with later events: status lines follow
        # twice a second.
        if event["kind"] not in _OF_EVERY_NODE or now_s - flushed_s > _FLUSH_INTERVAL_S:
            flushed_s = now_s
            is_full = not _sent(channel, unsent)

    return report


def _sent(channel: int, unsent: bytearray) -> bool:
    """Send as much of ``unsent`` as the pipe has room for, and remove it; return whether everything was sent."""
    try:
        while unsent:
            del unsent[: os.write(channel, unsent[:_CHUNK_BYTES])]
    except BlockingIOError:
        return False
    return True


def _listen_to_launcher() -> None:
    # A signal and not a thread: nodes are forked from this process, which must have no threads (node_processes).
    signal.signal(signal.SIGIO, _on_launcher)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    _on_launcher()


def _on_launcher(*_: object) -> None:
    try:
        request = os.read(0, 64)
    except BlockingIOError:
        return
    if not request:
        os._exit(LAUNCHER_GONE)
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):  # Python's handler raises KeyboardInterrupt; the fleet's ends its nodes in good order
        handler(signal.SIGINT, None)
    else:
        raise KeyboardInterrupt


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a script's threads and processes may still run; an orderly exit would wait for them
