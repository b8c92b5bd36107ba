"""Compares whole runs of the best techniques with the advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.advise.advice import Advice, Row
from analysis.advise.goal import BYTES, MONEY, Goal
from testbed.errors import ScenarioError


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A technique and the value of a whole run of it; infinite if the run did not reach the goal."""

    row: Row
    value: float

    @property
    def is_inside(self) -> bool:
        """Whether the run's value lies in the interval of the advice."""
        return self.row.estimate is not None and self.row.estimate.low <= self.value <= self.row.estimate.high


def refuse_what_runs_do_not_tell(advice: Advice) -> None:
    """Raise ``ScenarioError`` if money is to be minimised, which runs do not measure, or no technique is ranked."""
    if advice.goal.least == MONEY:
        raise ScenarioError("--confirm: runs measure time and bytes, not money; confirm with --least time, or bytes")
    if not advice.ranked:
        raise ScenarioError("--confirm: no technique reaches the goal, so there is nothing to confirm")


def value_of(goal: Goal, result: Mapping[str, Any]) -> float:
    """Return the time or bytes that a run took to the goal, or per sample if there is no target; infinite if it missed.

    result  the run's ``result.json``
    """
    if goal.target is not None and result["time_to_target_s"] is None:
        return math.inf
    moved = sum(each["up"] for part in ("wan_payload_bytes", "wan_header_bytes") for each in result[part].values())
    if goal.least == BYTES:
        samples = max(1, result.get("samples_per_worker", [1, 1])[1])
        return float(moved) if goal.target is not None else moved / samples
    if goal.target is None:
        return 1 / result["samples_per_s"] if result["samples_per_s"] else math.inf
    return float(result["time_to_target_s"])


def regret(found: Sequence[Confirmed]) -> float:
    """Return how much more the advised technique, the first, took than the best of ``found``, as a share."""
    return found[0].value / min(each.value for each in found) - 1
