"""How workers without servers go on after a change of the membership: the scheduler's part.

Every change makes a new epoch (``engine.scheduler``). Each worker then reports how far it has come, and changes nothing
that its report says before the answer. When all who take part have reported for the newest epoch, the scheduler tells
them the largest progress and who has made it. A change meanwhile begins a new epoch, with new reports.

The same reports take the place of the barrier before training, with epoch 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from testbed.plan.model import Plan

AGREE = "agree/"  # barrier of an epoch, with its number
TRAINED = "trained"  # barrier of workers that change their models no more
NOTHING = -2  # progress of a worker without values
FIRST_VALUES = -1  # of one that has those before training
ENDED = 1 << 40  # of one whose values are the run's result


def regroups(plan: Plan) -> bool:
    """Return whether workers agree with each other when one is lost or joins: the run continues, without servers."""
    servers = any(node.role in ("server", "global_server") for node in plan.nodes)
    return plan.recovery.on_failure == "continue" and not servers


class EpochReports:
    """The reports of an epoch."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, int]] = {}
        self._epoch, self._decided = 0, -1

    def report(self, worker: str, meta: dict[str, Any]) -> None:
        """Note a worker's report: its epoch, progress, and the last round that it knows of."""
        epoch = int(meta["name"].removeprefix(AGREE))
        if epoch > self._epoch:
            self._epoch, self._reports = epoch, {}
        if epoch == self._epoch:
            self._reports[worker] = meta["progress"], meta["last"]

    def decide(self, epoch: int, members: Iterable[str]) -> dict[str, Any] | None:
        """Return what to tell ``members``, in rank order; ``None``: not yet, or they have been told."""
        members = list(members)
        reports = self._reports if self._epoch == epoch else {}
        if self._decided == epoch or any(name not in reports for name in members):
            return None
        self._decided = epoch
        most = max(reports[name][0] for name in members)
        holder = next(name for name in members if reports[name][0] == most)
        return {
            "name": f"{AGREE}{epoch}", "progress": max(most, FIRST_VALUES), "holder": holder,
            "last": min(reports[name][1] for name in members),
        }  # fmt: skip
