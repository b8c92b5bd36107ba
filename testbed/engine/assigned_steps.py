"""Numbers of local steps in runs without servers, in which every worker runs the synchronisation algorithm itself.

If the algorithm assigns steps, workers report to each other how long a step took, and pass on the reports of others.
Each worker gives the reports of all workers, in rank order, to its own copy of the algorithm. An exchange ends only
after the last worker has come to it, so its duration says nothing about a single worker, and is reported as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from testbed.engine import sync_setup
from testbed.engine.local_work import LocalResult
from testbed.plan.model import Plan
from testbed.policy.events import Push, Reply, WorkerReport
from testbed.policy.sync.base import SyncPolicy
from testbed.state import Remembering


class Report(NamedTuple):
    """The seconds that a step of ``round`` took at a worker."""

    round: int
    step_s: float


class LocalStepCounts(Remembering):
    """Determines the number of local steps that ``worker`` makes in each round, from the reports of all ``workers``.

    reports  by worker, including this one: the newest known report; empty if the algorithm needs none
    """

    remembers = ("_assigned", "reports", "_policy")

    def __init__(self, plan: Plan, worker: str, workers: Sequence[str]) -> None:
        self._declared = sync_setup.local_steps(plan)
        self._worker = worker
        self._workers = workers
        self._policy: SyncPolicy | None = None
        if sync_setup.needs_reports(plan):
            algorithm, options = sync_setup.worker_sync(plan)
            self._policy = algorithm(sync_setup.tier_of_workers(plan, workers), options)
        self._assigned = 0
        self.reports: dict[str, Report] = {}

    def of(self, round_: int) -> int:
        return self._assigned or self._declared(round_)

    def measured(self, round_: int, result: LocalResult, work_s: float) -> None:
        if self._policy is not None:
            self.reports[self._worker] = Report(round_, round(work_s / result.steps, 6))

    def heard(self, round_: int, reports: Iterable[tuple[str, Report]]) -> None:
        """Take the reports that came with the exchange of ``round_``."""
        for name, report in reports:
            if name not in self.reports or self.reports[name].round < report.round:
                self.reports[name] = report
        if self._policy is None or len(self.reports) < len(self._workers):
            return
        for name in self._workers:
            push = Push(name, 0, round_, reports={name: WorkerReport(self.reports[name].step_s, 0.0)})
            for effect in self._policy.on_push(push):
                if isinstance(effect, Reply):
                    self._assigned = effect.steps.get(self._worker, self._assigned)

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.reports = {name: Report(*each) for name, each in self.reports.items()}
