"""Tells when the Plan's faults are due that must be carried out or recorded during a run. It does no I/O.

In every world, the launcher of the nodes reports the start of training and finished rounds to the clock, and takes the
due faults from it. One clock serves all restarts of a run, so no fault happens twice.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.plan.instant import Instant
from testbed.plan.model import FaultPlan, Plan

# kinds that must be carried out; for other kinds, only the event is recorded
DONE_TO_NODES = ("kill", "pause", "join", "leave")
# Decimals of seconds. At one instant, faults begin before others end, so that successive faults leave no gap.
_DIGITS = 9
IN_ROUNDS = ("nan", "disk_full", "attack", "leave")  # if these have a round, the node itself carries them out


@dataclass(frozen=True, slots=True)
class Due:
    """The beginning or the end of a fault, both with the same ``number``. ``planned_s`` is on the run's clock."""

    fault: FaultPlan
    begins: bool
    planned_s: float
    number: int = 0

    @property
    def until_s(self) -> float:
        return self.planned_s + self.fault.for_s

    def event(self, now_s: float) -> dict[str, Any]:
        """Return the fields of the ``fault`` event."""
        return {
            "fault": self.fault.kind,
            "targets": ", ".join(self.fault.targets),
            "begins": self.begins,
            "planned_t": round(self.planned_s, 6),
            "late_s": round(now_s - self.planned_s, 6) + 0.0,
        }

    def __str__(self) -> str:
        return f"{self.fault.kind} {', '.join(self.fault.targets)}" + ("" if self.begins else ": over")


class FaultClock:
    """See the module's docstring. Times are seconds on the run's clock.

    absent     the nodes that do not run when the run begins, or when it resumes from a checkpoint
    past       the faults that were due before the checkpoint, in order
    resumed_s  the time at which the run resumes from the checkpoint
    rounds_s   (number in the Plan, time of beginning) of each fault that a finished round has begun
    paused_s   by node: the time until which it stands still, in a resumed run
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.absent: frozenset[str] = frozenset(plan.late_comers)
        self.past: tuple[Due, ...] = ()
        self.resumed_s = -math.inf
        self.rounds_s: list[tuple[int, float]] = []
        self.paused_s: Mapping[str, float] = {}
        self._timed = [fault for fault in plan.faults if fault.at_s is not None]
        self._by_round = [fault for fault in plan.faults if fault.at_s is None and fault.kind not in IN_ROUNDS]
        self._done = (-1, 0.0)  # for a continued run: the last round and the seconds of training of the earlier run
        self._heap: list[tuple[float, bool, int, Due]] = []
        self._count = itertools.count()
        self.training_since_s: float | None = None

    def started(self, now_s: float) -> None:
        """Record the start of training. Only the first call counts."""
        if self.training_since_s is None:
            self.training_since_s = now_s
            round_, trained_s = self._done
            for fault in self._timed:
                assert fault.at_s is not None
                self._push(fault, True, now_s - trained_s + fault.at_s, next(self._count))
            if round_ >= 0:
                self._pass(round_, now_s)

    def goes_on(self, round_: int, trained_s: float, absent: Iterable[str]) -> None:
        """Record that the run continues an earlier one, on a new clock.

        round_, trained_s  the last round of the earlier run, and its seconds of training
        absent             the nodes that took no part in the earlier run at its end
        """
        if self.training_since_s is None:
            self._done = (round_, trained_s)
            self.absent = frozenset(absent)

    def resumed(self, round_: int, instant: Instant, absent: Iterable[str] = ()) -> None:
        """Record that the run resumes an earlier one at ``instant``, with the same clock. Faults due by then are past.

        ``absent``: the nodes that took no part in the earlier run at that instant.
        """
        if self.training_since_s is None:
            self.absent = frozenset(absent)
            self.paused_s = instant.paused_s
            self.started(instant.training_since_s)
            for number, begun_s in instant.faults_s:
                self._begin(self._plan.faults[number : number + 1], begun_s)
            self._pass(round_, instant.at_s)

    def _pass(self, round_: int, now_s: float) -> None:
        self.finished(round_, now_s)
        self.past = tuple(self.take(now_s))
        self.resumed_s = now_s

    def finished(self, round_: int, now_s: float) -> None:
        self._begin([fault for fault in self._by_round if fault.round is not None and fault.round <= round_], now_s)

    def _begin(self, faults: Iterable[FaultPlan], now_s: float) -> None:
        for fault in faults:
            if fault in self._by_round:
                self._by_round.remove(fault)
                self.rounds_s.append((self._plan.faults.index(fault), now_s))
                self._push(fault, True, now_s, next(self._count))

    @property
    def due_s(self) -> float:
        """The time at which ``take`` must be called next; infinite: not yet known, or never."""
        return self._heap[0][-1].planned_s if self._heap else math.inf

    def take(self, now_s: float) -> Iterator[Due]:
        while self._heap and self._heap[0][0] <= round(now_s, _DIGITS):
            due = heapq.heappop(self._heap)[-1]
            if due.begins and math.isfinite(due.fault.for_s):
                self._push(due.fault, False, due.until_s, due.number)
            yield due

    def _push(self, fault: FaultPlan, begins: bool, planned_s: float, number: int) -> None:
        heapq.heappush(
            self._heap, (round(planned_s, _DIGITS), not begins, number, Due(fault, begins, planned_s, number))
        )


def expendable(plan: Plan) -> frozenset[str]:
    """Return the nodes without which the run can continue; none unless ``recovery.on_failure`` is ``continue``."""
    if plan.recovery.on_failure != "continue":
        return frozenset()
    roles = {"worker", "server", "replica"} | ({"global_server"} if plan.recovery.replicas else set())
    return frozenset(node.name for node in plan.nodes if node.role in roles)


def needed_with(plan: Plan, node: str) -> tuple[str, ...]:
    """Return the nodes to start when ``node`` comes back: itself, its local server, and a local server's workers."""
    own = plan.node(node)
    servers = [name for name in own.parents if plan.node(name).role == "server"]
    return (*servers, node, *(own.children if own.role == "server" else ()))
