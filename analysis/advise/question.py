"""What a search is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.advise.candidates import Candidate
from analysis.advise.estimate import Known, Value
from analysis.advise.observation import Limits
from analysis.advise.prices import Prices
from testbed.plan.model import Plan
from testbed.scenario.sweep import TuningRange
from testbed.target import Target

Tell = Callable[[str], None]
"""Shows progress."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a search is for. ``target``: ``None`` where nothing is learned, and a training sample counts.

    points        how much lower than that of the scenario's own technique the accuracy at the end may be (share)
    within        returns when a candidate's run has certainly taken more than a value
    combined      returns further candidates, made of the best ones
    another_seed  returns a candidate's Plan of another seed
    tune          the range in which a setting of the optimizer is searched
    changed       returns a candidate with one more setting, a text ``path=value``
    """

    target: Target | None
    value: Value
    another_seed: Callable[[Candidate, int], Plan]
    jobs: int
    prices: Prices | None = None
    points: float | None = None
    within: Callable[[Known, float], Limits] = lambda known, most: Limits()
    combined: Callable[[list[Candidate]], list[Candidate]] = lambda best: []
    tune: TuningRange | None = None
    changed: Callable[[Candidate, str], Candidate] = lambda candidate, setting: candidate
