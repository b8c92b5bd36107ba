"""ESync: every worker makes as many local steps as fit until the slowest worker's push arrives.

Li et al., ESync: Accelerating intra-domain federated learning in heterogeneous data centers, IEEE TSC 15(4), 2022.
Worker r needs c_r seconds for a local step, and τ_r to send its model and receive the new one. The slowest worker, with
the largest c_j + τ_j, does one step a round. Every other worker does as many steps as fit into a round that is at most
``slack_s`` (s) longer than that: k_r = max(1, ⌊(max_j (c_j + τ_j) + s − τ_r) / c_r⌋). The ε of the authors' code has
the opposite effect: a worker pushes when a further step would end less than ε before the slowest worker's.

The paper's state server is the parameter server itself: workers' reports travel with their pushes, and the number of
steps of the next round travels with the reply. So there are no further messages, both compute and transmission count,
and clocks need not agree, because only durations are reported. c_r and τ_r are medians of the last three reports: one
slow transfer, of which there are many where queues overflow, changes no numbers of steps. Every round is synchronous:
there is no staleness.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Contribution, Effect, Push, WorkerReport
from testbed.policy.sync.base import WEIGHTS, Tier
from testbed.policy.sync.fsa import Fsa
from testbed.preset import Preset

RECENT = 3  # reports whose median counts
LEAST_S = 1e-6  # reports have a resolution of 1 µs; a shorter step is reported as 0, by which one cannot divide


class ESync(Fsa):
    """Synchronous rounds of outer gradients, with balanced numbers of local steps."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    spans_tiers: ClassVar[bool] = True
    needs_reports: ClassVar[bool] = True
    assigns_steps: ClassVar[bool] = True
    supports_failover: ClassVar[bool] = False  # reports that reached the lost server would be missing
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="esync",
            summary="fast workers make as many local steps as fit until the slowest one's push arrives",
            source="Li et al., IEEE TSC 2022",
            settings={"sync": {}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``fixed_steps``: the same for every worker instead of balanced ones, for runs that must repeat to the bit."""

        slack_s: float = option(0.0, "how late a fast worker may be", unit="s")
        max_steps: int = option(1000, "most local steps a round", min=1, max=10**6)
        global_learning_rate: float = option(1.0, "step size along the mean change", above=0, max=100)
        fixed_steps: int = option(0, "this many steps for every worker; 0: balanced", min=0, max=10**6)
        weights: str = option("worker", **WEIGHTS)

    remembers = ("_recent", "_reported_by")

    def __init__(self, tier: Tier, options: Options) -> None:
        super().__init__(tier, options)
        self._options = options
        self._assigns = not options.fixed_steps and not tier.steps_assigned_above
        self._recent: dict[str, list[tuple[float, float]]] = {}  # by worker: seconds of steps and of transfers
        self._noted: dict[str, int] = {}  # by worker: the round of its latest report
        self._reported_by: dict[str, str] = {}  # by worker: the member whose push carried its latest report

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return options.fixed_steps or 1

    @classmethod
    def slack_s(cls, options: Options) -> float:
        return options.slack_s

    @classmethod
    def outer_optimizer(cls, options: Options) -> tuple[str, dict[str, Any]]:
        return "sgd", {"learning_rate": options.global_learning_rate}

    def on_push(self, push: Push) -> list[Effect]:
        if push.reports:  # they come with one key of a round, and with each slice of it
            self._forget(push.member, push.reports)
            for worker, report in push.reports.items():
                if self._noted.get(worker) != push.round:
                    self._noted[worker] = push.round
                    before = self._recent.get(worker, [])[1 - RECENT :]
                    self._recent[worker] = [*before, (report.step_s, report.transfer_s)]
            self._reported_by.update(dict.fromkeys(push.reports, push.member))
        return super().on_push(push)

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        for member in set(self._reported_by.values()).difference(first):
            for worker in self._forget(member, ()):  # the others no longer wait for it, nor for workers below it
                del self._recent[worker]
                self._noted.pop(worker, None)
        return super().regroup(first)

    def _forget(self, member: str, kept: Collection[str]) -> list[str]:
        """Drop and return the workers whose reports came through ``member``, except ``kept``: they are lost."""
        lost = [worker for worker, by in self._reported_by.items() if by == member and worker not in kept]
        for worker in lost:
            del self._reported_by[worker]
        return lost

    def steps(self) -> Mapping[str, int]:
        if not self._assigns:
            return {}
        medians = {worker: map(median_low, zip(*self._recent[worker], strict=True)) for worker in self._reported_by}
        return balanced_steps({worker: WorkerReport(*each) for worker, each in medians.items()}, self._options)


def balanced_steps(reports: Mapping[str, WorkerReport], options: ESync.Options) -> dict[str, int]:
    """Return the local steps of each worker for its next round, k_r of the module's formula; empty without reports."""
    if not reports:
        return {}
    reach_s = max(report.step_s + report.transfer_s for report in reports.values()) + options.slack_s
    return {
        worker: _steps_within(reach_s - report.transfer_s, report.step_s, options) for worker, report in reports.items()
    }


def _steps_within(time_s: float, step_s: float, options: ESync.Options) -> int:
    return min(options.max_steps, max(1, math.floor(time_s / max(step_s, LEAST_S) + 1e-9)))
