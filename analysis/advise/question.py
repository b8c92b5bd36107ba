"""The question that a search answers."""

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
    """The question that a search answers.

    target        ``None`` if nothing is trained, so that candidates are compared by a training sample
    value         returns the quantity to be minimised
    another_seed  returns a candidate's Plan with another seed
    jobs          number of simulations at the same time
    points        by how much the final accuracy may be below that of the scenario's own technique (share)
    within        returns the limits at which a candidate's run has certainly taken more than a given value
    combined      returns further candidates that are made of the best ones
    tune          the range in which a setting of the optimizer is searched; ``None`` without tuning
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
