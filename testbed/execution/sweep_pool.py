"""Runs several points of a sweep at once. On this machine, each runs in a fork of a process with all imports done.

A child owns its run directory (process id, start time, boot id) and dies with its parent, whatever signal ends the
parent. If a sweep is killed, the next one therefore recognises the unfinished directories as crashed and runs their
points again. ``concurrent.futures.ProcessPoolExecutor`` is not suitable: its workers either serve several points, which
would then share torch's state and open files, or cannot be forked; and a killed worker breaks the whole pool.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError, TestbedError
from testbed.execution.sweep_points import SweepPoint
from testbed.execution.sweep_run import Followers, PointRun, close_script, execute_point, fork_point, warm_up
from testbed.processes.child import UNEXPECTED, first_to_end
from testbed.results import COMPLETED, FINISHED
from testbed.results.rundir import AlreadyDone, RunDirectory, end_unforeseen, is_run
from testbed.results.summary import read_result

_ELSEWHERE_POLL_S = 0.5
TAKEN = 64  # exit code of a child: another process runs that point

OnState = Callable[[SweepPoint, str], None]
Warn = Callable[[str], None]


def _state(run: RunDirectory, warn: Warn) -> str:
    """Return the state of a run. If its status or result is damaged, mark it as interrupted, so that it runs again."""
    try:
        state = run.status().state
        if state in FINISHED and run.file("result.json").is_file():
            read_result(run.file("result.json"))
    except TestbedError as error:
        warn(f"{error}; it is run again")
        run.set_status("interrupted", "", str(error))
        return "interrupted"
    return state


@dataclass(slots=True)
class Pool(ABC):
    """Runs several points at a time, on this machine (``LocalPool``) or on the machines of a cluster.

    directory(point)  returns the run directory of a point
    on_state          called with a point and its state when the state changes
    warn              called with warnings for the user
    jobs              number of points that run at once
    followers         as in ``PointRun``
    """

    directory: Callable[[SweepPoint], Path]
    scenario: bytes
    on_state: OnState
    warn: Warn
    jobs: int | None
    retry_failed: bool = False
    followers: Followers = tuple
    _running: dict[Any, SweepPoint] = field(default_factory=dict)  # by child process, or by reference of a Ray task

    def run(self, points: Iterable[SweepPoint]) -> None:
        """Run the points that are not done; return when every point has ended, here or in another process."""
        waiting = deque(self._open(points))
        elsewhere: list[SweepPoint] = []  # points that another process runs
        try:
            self._prepare(waiting)
            while waiting or self._running or elsewhere:
                while waiting and len(self._running) < self._room(waiting[0]):
                    point = waiting.popleft()
                    if not self._start(point):
                        elsewhere.append(point)
                if self._running:
                    elsewhere += self._take_ended()
                elif elsewhere:
                    time.sleep(_ELSEWHERE_POLL_S)
                    waiting.extend(self._open(elsewhere))
                    elsewhere.clear()
        finally:
            self._end()

    def _open(self, points: Iterable[SweepPoint]) -> list[SweepPoint]:
        """Return the points that still have to run, each once; report the states of the others."""
        left = []
        for point in {point.id: point for point in points}.values():
            state = _state(RunDirectory(self.directory(point)), self.warn)
            if state in COMPLETED or (state == "failed" and not self.retry_failed):
                self.on_state(point, state)
            else:
                left.append(point)
        return left

    def _prepare(self, points: Sequence[SweepPoint]) -> None:  # noqa: B027 - optional
        """Prepare to run ``points``."""

    @abstractmethod
    def _room(self, point: SweepPoint) -> int:
        """Return how many points like ``point`` may run at once."""

    @abstractmethod
    def _start(self, point: SweepPoint) -> bool:
        """Start a point. Return False if another process runs it."""

    @abstractmethod
    def _take_ended(self) -> list[SweepPoint]:
        """Wait for a point to end, and report its state. Return points that turn out to run in another process."""

    @abstractmethod
    def _end(self) -> None:
        """End the points that still run, as after an interruption."""


class LocalPool(Pool):
    """Forks a process for each point from this one, which has done all imports."""

    __slots__ = ()

    def _prepare(self, points: Sequence[SweepPoint]) -> None:
        if points:
            warm_up(point.plan for point in points)
            _ = points[0].resolved  # fills caches before the fork, so that the children share them

    def _room(self, point: SweepPoint) -> int:
        return self.jobs or 1

    def _start(self, point: SweepPoint) -> bool:
        for stream in (sys.stdout, sys.stderr):  # otherwise the child would write the buffered text as well
            with suppress(OSError):  # such as a pipe without a reader
                stream.flush()
        self._running[fork_point(partial(self._child, point))] = point
        self.on_state(point, "running")
        return True

    def _take_ended(self) -> list[SweepPoint]:
        child = first_to_end(self._running)
        point = self._running.pop(child)
        code = child.close()
        if code == TAKEN:
            return [point]
        run = RunDirectory(self.directory(point))
        state = run.status().state
        if state == "crashed":
            close_script(run, point.plan, code)
        self.on_state(point, "failed" if state in ("crashed", "pending") else state)
        return []

    def _end(self) -> None:
        for child in self._running:
            child.send_signal(signal.SIGKILL)
        for child, point in self._running.items():
            child.close()
            run = RunDirectory(self.directory(point))
            if run.status().state == "crashed":  # not if another process runs the point, or it has not begun
                end_unforeseen(run, "interrupted", "its sweep was interrupted")
        self._running.clear()

    def _child(self, point: SweepPoint) -> int:
        try:
            execute_point(self.directory(point), PointRun(point.plan, self.scenario, point.resolved, self.followers))
            return 0
        except AlreadyDone:
            return 0
        except ScenarioError as error:
            return self._refused(point, error)
        except BaseException:
            traceback.print_exc()
            return UNEXPECTED

    def _refused(self, point: SweepPoint, error: ScenarioError) -> int:
        """Return the exit code for a directory that cannot be claimed: another process has it, or it is not usable."""
        if is_run(self.directory(point)):
            return TAKEN
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - os._exit drops what is buffered
        return UNEXPECTED
