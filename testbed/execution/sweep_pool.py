"""Runs several points at once, each in a process forked from this warm one, so that a small run has no start-up cost.

A child owns its run directory (process id, start time, boot id) and dies with its parent, by whatever signal. A sweep
that was killed thus leaves directories that the next one recognises as crashed, and runs again.
``concurrent.futures.ProcessPoolExecutor`` would not do: its workers outlive one point (and with it torch's state and
open files) or cannot be forked, and a killed worker breaks the whole pool.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from testbed.errors import ScenarioError, TestbedError
from testbed.execution import session
from testbed.execution.follower import Event, Follower
from testbed.execution.record import add_capabilities, conclude, prepare
from testbed.execution.scripts import SIMULATION, failure_files
from testbed.execution.session import SessionResult
from testbed.execution.sweep_points import SweepPoint
from testbed.results import COMPLETED
from testbed.results.manifest import git_state
from testbed.results.rundir import AlreadyDone, RunDirectory, is_run

_PR_SET_PDEATHSIG = 1
_ELSEWHERE_POLL_S = 0.5
TAKEN, UNEXPECTED = 64, 70  # exit codes of a child: another process runs that point; an error in testbed itself

OnState = Callable[[SweepPoint, str], None]
Followers = Callable[[], Sequence[Follower]]


@dataclass(slots=True)
class Pool:
    """``directory(point)`` is where a point runs. ``on_state`` is called with a point's state when it changes.

    ``followers`` makes those of one run, in the process that runs it. Their warnings are in its ``host.log``.
    """

    directory: Callable[[SweepPoint], Path]
    scenario: bytes
    on_state: OnState
    retry_failed: bool = False
    followers: Followers = tuple
    _children: dict[int, SweepPoint] = field(default_factory=dict)

    def run(self, points: Iterable[SweepPoint], jobs: int) -> None:
        """Run what is not done; return when every point has ended, here or in another process."""
        queue = deque(self._open(points))
        if queue:
            warm_up(queue)
        elsewhere: deque[SweepPoint] = deque()
        try:
            while queue or self._children or elsewhere:
                while queue and len(self._children) < jobs:
                    self._start(queue.popleft())
                if self._children:
                    point, code = self._reap()
                    (elsewhere if code == TAKEN else deque[SweepPoint]()).append(point)
                elif elsewhere:
                    time.sleep(_ELSEWHERE_POLL_S)
                    queue.extend(self._open(elsewhere))
                    elsewhere.clear()
        finally:
            self._end()

    def _open(self, points: Iterable[SweepPoint]) -> list[SweepPoint]:
        """The points that still have to run; the states of the others are reported."""
        left = []
        for point in {point.id: point for point in points}.values():
            state = RunDirectory(self.directory(point)).status().state
            if state in COMPLETED or (state == "failed" and not self.retry_failed):
                self.on_state(point, state)
            else:
                left.append(point)
        return left

    def _start(self, point: SweepPoint) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os._exit(self._child(point, parent))
        self._children[pid] = point
        self.on_state(point, "running")

    def _reap(self) -> tuple[SweepPoint, int]:
        pid, code = os.wait()
        while pid not in self._children:  # a library's own child
            pid, code = os.wait()
        point = self._children.pop(pid)
        if os.waitstatus_to_exitcode(code) != TAKEN:
            run = RunDirectory(self.directory(point))
            state = run.status().state
            if state == "crashed":
                _close(run, point, os.waitstatus_to_exitcode(code))
            self.on_state(point, "failed" if state in ("crashed", "pending") else state)
        return point, os.waitstatus_to_exitcode(code)

    def _end(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)
        self._children.clear()

    def _child(self, point: SweepPoint, parent: int) -> int:
        try:
            die_with_parent(parent)
            return self._execute(point)
        except AlreadyDone:
            return 0
        except ScenarioError as error:
            return self._refused(point, error)
        except BaseException:
            traceback.print_exc()
            return UNEXPECTED

    def _refused(self, point: SweepPoint, error: ScenarioError) -> int:
        """The directory could not be claimed: another process has it, or it can never be claimed."""
        if is_run(self.directory(point)):
            return TAKEN
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - os._exit drops what is buffered
        return UNEXPECTED

    def _execute(self, point: SweepPoint) -> int:
        begin_s, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        path = self.directory(point)
        run = prepare(path, point.plan, scenario=self.scenario, resolved=point.resolved, capabilities={})
        log = os.open(run.file("host.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        followers = self.followers()
        outcome = _attempt(point, run, followers)
        ended = conclude(run, point.plan, outcome, started, time.monotonic() - begin_s)
        run.set_status(ended.outcome.status, ended.result["plan_sha256"], ended.outcome.message)
        for follower in followers:
            follower.end(path)
        return 0


def _close(run: RunDirectory, point: SweepPoint, code: int) -> None:
    """Let a run whose script has ended its process fail with that cause; others are left to the next sweep."""
    files = failure_files(point.plan, run.path)
    node, cause = files.explain(SIMULATION, code, None) if files else ("", "")
    if files and node:
        files.close()
        run.set_status("failed", run.status().plan_sha256, f"{node}: {cause}\n{files.note(node)}")


def _attempt(point: SweepPoint, run: RunDirectory, followers: Sequence[Follower]) -> SessionResult:
    """Simulated in this very process; otherwise under a host process of its own."""

    def take(event: Event) -> None:
        add_capabilities(run, event)
        for follower in followers:
            for message in follower.take(event):
                print(f"warning: {message}", flush=True)  # noqa: T201 - into host.log

    try:
        for follower in followers:
            follower.start(point.plan, run.path)
    except TestbedError as error:
        return SessionResult("failed", str(error), error.exit_code)
    if point.plan.back_end == "simulate":
        from testbed.execution.host import attempt

        return attempt(point.plan, run.path, take)
    return session.run(point.plan, run.path, take)


def warm_up(points: Iterable[SweepPoint]) -> None:
    """Import what every child needs, read the data sets and ask git for the commit, before the first fork."""
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401
    import torch

    import testbed.engine.roles
    import testbed.execution.host
    import testbed.results.tables
    import testbed.simulation.run  # noqa: F401
    from testbed.engine.learner import warm_up as read_data

    torch.set_num_threads(1)
    git_state()
    for point in {repr(point.plan.training.data): point for point in points}.values():
        read_data(point.plan)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent has ended. Raise ``OSError`` where it refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended between fork and prctl
        os._exit(UNEXPECTED)
