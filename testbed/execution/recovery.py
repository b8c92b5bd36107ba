"""Runs whose nodes may be lost: records faults, and restarts the job if the plan says so.

A restart begins the whole job again from its last checkpoint (or from its beginning), as in TorchElastic and Horovod
Elastic. A checkpoint holds everything that the next round depends on, so a restarted run ends with the same bits as an
undisturbed one, whichever node was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import NodeLost, TestbedError
from testbed.execution.scripts import failure_files, point_to_traceback
from testbed.garbage import collect_garbage
from testbed.plan.fault_clock import Due, FaultClock
from testbed.plan.model import Plan
from testbed.results.events import EventLog
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from testbed.realtime.fleet import Fleet

LOG = "faults"


class Attempts:
    """The attempts of one run. ``clock``: its faults. ``now_s``: the run's time, which the code of an attempt sets."""

    def __init__(self, plan: Plan, directory: Path, report: Progress) -> None:
        self._plan = plan
        self._report = report
        self.clock = FaultClock(plan)
        self.now_s = 0.0
        self._back_s = 0.0  # when the killed nodes may start again
        self._log = EventLog(directory / "events", LOG) if plan.faults or self._restarts else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    @property
    def _restarts(self) -> int:
        recovery = self._plan.recovery
        return recovery.max_restarts if recovery.on_failure == "restart" else 0

    def on_fault(self, due: Due, now_s: float) -> None:
        """Record that a fault begins or ends."""
        self.now_s = max(self.now_s, now_s)
        self._take(due, now_s)

    def _take(self, due: Due, now_s: float) -> None:
        if due.begins and due.fault.kind == "kill" and due.until_s < float("inf"):
            self._back_s = max(self._back_s, due.until_s)
        self._record("fault", now_s, **due.event(now_s))
        self._report({"kind": "fault", "t": now_s, "message": str(due)})

    def run(self, once: Callable[[float], None]) -> None:
        """Call ``once`` with the start of the attempt in seconds of the run, until it ends well or no restart is left.

        Raises the ``NodeLost`` of the last attempt, and any other error at once.
        """
        begin_s = 0.0
        for left in range(self._restarts, -1, -1):
            try:
                return once(begin_s)
            except NodeLost as error:
                if not left:
                    raise self._final(error) from error
                begin_s = self._next_beginning_s()
                number = self._restarts - left + 1
                self._record("restart", self.now_s, number=number, message=str(error), begins_t=round(begin_s, 6))
                self._report({"kind": "stage", "name": f"restarting ({left} left) after: {error}"})
            collect_garbage()  # the error's frames, the fleet and its checkpoint form cycles that would pile up
        return None

    def _next_beginning_s(self) -> float:
        """Return when all nodes may start again, in seconds of the run.

        Faults that begin before that find no process; still, a ``kill`` keeps its nodes away for its duration.
        """
        begin_s = max(self.now_s + self._plan.recovery.restart_delay_s, self._back_s)
        while missed := list(self.clock.take(begin_s)):
            for due in missed:
                self._take(due, due.planned_s)
            begin_s = max(begin_s, self._back_s)
        return begin_s

    def _final(self, error: NodeLost) -> NodeLost:
        final = NodeLost(f"{error} (after {self._restarts} restarts)") if self._restarts else error
        final.__notes__ = getattr(error, "__notes__", [])
        return final

    def _record(self, kind: str, t: float, **fields: Any) -> None:
        if self._log is not None:
            self._log.write(kind, t, **fields)
            self._log.flush()


def timed(report: Progress, epoch_ns: int) -> Progress:
    """Return a ``report`` that adds the present time of the run's clock to events without a time."""

    def with_time(event: dict[str, Any]) -> None:
        report({"t": (time.monotonic_ns() - epoch_ns) / 1e9, **event})

    return with_time


def attempt_until_done(
    plan: Plan, directory: Path, report: Progress, epoch_ns: int, make_fleet: Callable[[Attempts], Fleet]
) -> None:
    """Run the nodes to their end, with a new fleet for each attempt. Raise the first cause of the last attempt."""

    def now_s() -> float:
        return (time.monotonic_ns() - epoch_ns) / 1e9

    failures = failure_files(plan, directory)
    with Attempts(plan, directory, report) as attempts:

        def attempt(begin_s: float) -> None:
            time.sleep(max(0.0, begin_s - now_s()))
            try:
                make_fleet(attempts).run(report)
            except TestbedError as error:
                point_to_traceback(error, failures)
                raise
            finally:
                attempts.now_s = now_s()
                if failures is not None:
                    failures.close()

        attempts.run(attempt)
