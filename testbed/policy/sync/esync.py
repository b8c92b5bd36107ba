"""ESync: everybody does as many local steps as fit until the slowest arrives.

Li et al., ESync: Accelerating intra-domain federated learning in heterogeneous data centers, IEEE TSC 15(4), 2022.
Worker r needs c_r for a local step and τ_r to move its model to and fro; the slowest, max over j of c_j + τ_j, does
one step a round, and r does as many as end before that: k_r = max(1, ⌊(max_j (c_j + τ_j) + ε − τ_r) / c_r⌋).

The state server of the paper is the server itself: workers' reports travel with their pushes, and the number of steps
of the next round travels with the answer. So there are no further messages, compute *and* transmission count, and
clocks need not agree, for only durations are reported. Every round is synchronous: there is no staleness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from testbed.policy.events import Contribution, Effect, Push, Report
from testbed.policy.sync.fsa import Fsa


class ESync(Fsa):
    """Synchronous rounds of outer gradients, with balanced numbers of local steps."""

    contribution: ClassVar = Contribution.DELTA
    tiers: ClassVar = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """``steps``: fixed numbers by rank of worker instead of measured ones, for runs that must repeat to the bit."""

        slack_s: float = field(
            default=0.0, metadata={"help": "how late a fast worker may be (ε)", "unit": "s", "min": 0, "max": 3600}
        )
        max_steps: int = field(default=1000, metadata={"help": "most local steps a round", "min": 1, "max": 10**6})
        global_learning_rate: float = field(
            default=1.0, metadata={"help": "step size along the mean change", "above": 0, "max": 100}
        )
        fixed_steps: int = field(
            default=0, metadata={"help": "this many steps for everybody; 0: balanced", "min": 0, "max": 10**6}
        )
        weights: str = field(
            default="worker",
            metadata={"help": "what a member counts for in the mean", "choices": ("party", "worker", "sample")},
        )

        @property
        def local_steps(self) -> int:
            """Local steps of the first round, before anything is known."""
            return self.fixed_steps or 1

        @property
        def outer(self) -> tuple[str, dict[str, Any]]:
            """The optimizer at the top tier, and its options."""
            return "sgd", {"learning_rate": self.global_learning_rate}

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        super().__init__(members, Fsa.Options())
        self._options = options
        self._reports: dict[str, Report] = {}

    def on_push(self, push: Push) -> list[Effect]:
        self._reports.update(push.reports)
        return super().on_push(push)

    def lose(self, member: str) -> list[Effect]:
        self._reports.pop(member, None)  # nobody waits for it any more
        return super().lose(member)

    def _steps(self) -> Mapping[str, int]:
        return {} if self._options.fixed_steps else balanced_steps(self._reports, self._options)


def balanced_steps(reports: Mapping[str, Report], options: ESync.Options) -> dict[str, int]:
    """Local steps of each worker for its next round, from what all have reported."""
    if not reports:
        return {}
    reach_s = max(report.step_s + report.transfer_s for report in reports.values()) + options.slack_s
    return {
        worker: min(options.max_steps, max(1, math.floor((reach_s - report.transfer_s) / report.step_s + 1e-9)))
        for worker, report in reports.items()
    }
