"""Runs several points at once, each in a process forked from this warm one, so that a small run has no start-up cost.

A child owns its run directory (process id, start time, boot id) and dies with its parent, whatever signal ends that. A
sweep that is killed therefore leaves directories that the next one recognises as crashed and runs again.
``concurrent.futures.ProcessPoolExecutor`` would not do: its workers outlive one point (and with it torch's state and
open files) or cannot be forked, and a killed worker breaks the whole pool.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from testbed.errors import ScenarioError, TestbedError
from testbed.execution.sweep_points import SweepPoint
from testbed.execution.sweep_run import Followers, PointRun, close_script, execute_point, fork_point, warm_up
from testbed.processes.child import UNEXPECTED, Child, first_to_end
from testbed.results import COMPLETED, FINISHED
from testbed.results.rundir import AlreadyDone, RunDirectory, is_run
from testbed.results.summary import read_result

ELSEWHERE_POLL_S = 0.5
TAKEN = 64  # exit code of a child: another process runs that point

OnState = Callable[[SweepPoint, str], None]
Warn = Callable[[str], None]


def open_points(
    points: Iterable[SweepPoint], directory: Callable[[SweepPoint], Path], on_state: OnState, warn: Warn,
    retry_failed: bool,
) -> list[SweepPoint]:  # fmt: skip
    """Return the points that still have to run, each once; report the states of the others."""
    left = []
    for point in {point.id: point for point in points}.values():
        state = _state(RunDirectory(directory(point)), warn)
        if state in COMPLETED or (state == "failed" and not retry_failed):
            on_state(point, state)
        else:
            left.append(point)
    return left


def _state(run: RunDirectory, warn: Warn) -> str:
    """Return the state of a point. One whose status or result is damaged has to run again."""
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
class Pool:
    """``directory(point)`` is where a point runs. ``on_state`` is called with a point's state when it changes.

    ``warn`` takes what the user should know. ``followers``: as in ``PointRun``.
    """

    directory: Callable[[SweepPoint], Path]
    scenario: bytes
    on_state: OnState
    warn: Warn
    retry_failed: bool = False
    followers: Followers = tuple
    _children: dict[Child, SweepPoint] = field(default_factory=dict)

    def run(self, points: Iterable[SweepPoint], jobs: int) -> None:
        """Run what is not done; return when every point has ended, here or in another process."""
        queue = deque(self._open(points))
        if queue:
            warm_up(point.plan for point in queue)
            _ = queue[0].resolved  # caches, before the fork, what all have in common
        elsewhere: list[SweepPoint] = []
        try:
            while queue or self._children or elsewhere:
                while queue and len(self._children) < jobs:
                    self._start(queue.popleft())
                if self._children:
                    point, code = self._reap()
                    if code == TAKEN:
                        elsewhere.append(point)
                elif elsewhere:
                    time.sleep(ELSEWHERE_POLL_S)
                    queue.extend(self._open(elsewhere))
                    elsewhere.clear()
        finally:
            self._end()

    def _open(self, points: Iterable[SweepPoint]) -> list[SweepPoint]:
        return open_points(points, self.directory, self.on_state, self.warn, self.retry_failed)

    def _start(self, point: SweepPoint) -> None:
        for stream in (sys.stdout, sys.stderr):  # else the child would have what is buffered, too
            with suppress(OSError):  # such as a pipe without a reader
                stream.flush()
        self._children[fork_point(partial(self._child, point))] = point
        self.on_state(point, "running")

    def _reap(self) -> tuple[SweepPoint, int]:
        child = first_to_end(self._children)
        point = self._children.pop(child)
        code = child.close()
        if code != TAKEN:
            run = RunDirectory(self.directory(point))
            state = run.status().state
            if state == "crashed":
                close_script(run, point.plan, code)
            self.on_state(point, "failed" if state in ("crashed", "pending") else state)
        return point, code

    def _end(self) -> None:
        for child in self._children:
            child.send_signal(signal.SIGKILL)
        for child in self._children:
            child.close()
        self._children.clear()

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
        """Return the exit code for a directory that cannot be claimed, now or at any time."""
        if is_run(self.directory(point)):
            return TAKEN
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - os._exit drops what is buffered
        return UNEXPECTED
