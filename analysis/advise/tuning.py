"""Searches a setting of the optimizer, such as the learning rate, for each group of candidates that learn alike.

Every group gets the same number of runs. The first of them uses the technique's own value, and was made before tuning,
so the tuned value is never worse. The values of the others are drawn as by ``testbed sweep --tune``. A run ends when it
can no longer beat the best technique.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from analysis.advise import estimate, mathematics
from analysis.advise.budget import Budget
from analysis.advise.estimate import Known
from analysis.advise.observation import UNLIMITED, Observation
from analysis.advise.pool import Task
from analysis.advise.question import Question, Tell
from testbed.execution.tuning import Grid, Trial, ValueSearch
from testbed.plan.model import Plan
from testbed.scenario.sweep import TuningRange

_WORSE = 3.0  # how strongly the score of a run that misses the goal grows with its distance from the goal


class Search(Protocol):
    """The part of ``analysis.advise.search.Search`` that tuning uses."""

    question: Question
    budget: Budget
    known: dict[str, Known]

    @property
    def tell(self) -> Tell:
        """Shows progress."""

    @property
    def seed(self) -> int:
        """The scenario's own seed."""

    def by_mathematics(self) -> dict[str, list[Known]]:
        """Return the candidates grouped by their mathematics, the most promising group first."""

    def bound(self) -> float:
        """Return the value up to which candidates are trained."""

    def worth(self, members: list[Known], most: float) -> int:
        """Return for how many rounds to train these candidates."""

    def training(self, known: Known, plan: Plan, rounds: int) -> Plan:
        """Return the Plan that trains a candidate for ``rounds`` rounds, or until it reaches the goal."""

    def simulate(self, tasks: Iterable[Task[str]], share: float) -> Iterator[tuple[Task[str], Observation]]:
        """Simulate tasks as long as the budget allows."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a search.

    runs    number of runs
    value   the best value of the setting; empty if no run reached the goal
    at_end  ``low`` or ``high`` if the best value is that end of the range; otherwise empty
    """

    runs: int
    value: str
    at_end: str


@dataclass(slots=True)
class _Group:
    """Candidates that learn alike, and the search for their value.

    asked    Optuna's current trial, and the place of its value on the grid
    changed  the candidates with the value of the current trial
    """

    members: list[Known]
    values: ValueSearch
    asked: tuple[Any, int] = (None, 0)
    changed: list[Known] = field(default_factory=list)


def tune(search: Search, range_: TuningRange, share: float) -> dict[str, Tuned]:
    """Search a value for each candidate, up to this share of the budget. Return the results by candidate name.

    If a value is better than the candidate's own, the candidate with that value replaces it in ``search.known``.
    """
    groups: dict[str, _Group] = {}
    for key, members in search.by_mathematics().items():
        values = _search_of(members[0], range_, search)
        if values is not None:
            groups[key] = _Group(members, values)
    for number in range(range_.trials):
        search.tell(f"tuning {range_.path}: run {number + 1} of {range_.trials} for each kind of mathematics")
        for task, seen in search.simulate(_trainings(search, groups, range_.path, share), share):
            _take(search, groups[task.key], seen)
    return {known.candidate.name: _tuned(group.values) for group in groups.values() for known in group.members}


def _tuned(values: ValueSearch) -> Tuned:
    best = values.best()
    if best is None or not best.reached:
        return Tuned(len(values.trials), "", "")
    return Tuned(len(values.trials), best.value, values.end_of(best))


def _search_of(known: Known, range_: TuningRange, search: Search) -> ValueSearch | None:
    """Return a new search for a candidate's value; ``None`` if its optimizer has no such setting above 0."""
    option = range_.path.partition(".")[2]
    own = known.candidate.plan.technique.optimizer.options.get(option)
    if not isinstance(own, float | int) or own <= 0:
        return None
    return ValueSearch({}, Grid(range_, own), search.seed, search.question.target)


def _trainings(search: Search, groups: Mapping[str, _Group], path: str, share: float) -> Iterator[Task[str]]:
    """Yield the next training of each group. The first trial has the group's own value: its result is noted at once."""
    for key, group in groups.items():
        asked, place = group.values.next_place()
        group.asked = asked, place
        if not group.values.trials:
            _note(group, min(_score(search, known) for known in group.members), 0.0)
            continue
        setting = f"{path}={group.values.grid.value(place)}"
        group.changed = [_with(search, known, setting) for known in group.members]
        rounds = search.worth(group.members, 1.0)
        if rounds:
            first = group.changed[0]
            within = search.question.within(first, search.bound()) if first.timed else UNLIMITED
            training = search.training(first, first.candidate.plan, rounds)
            yield Task(key, training, search.budget.limits(share, within=within))


def _with(search: Search, known: Known, setting: str) -> Known:
    """Return a candidate with one more setting. It keeps its pace, and has no trainings yet."""
    candidate = search.question.changed(known.candidate, setting)
    return replace(known, candidate=candidate, mathematics=mathematics.signature(candidate.plan), curves={})


def _score(search: Search, known: Known) -> float:
    """Return a candidate's value with the first seed; infinite if it did not reach the goal."""
    assert search.question.target is not None
    end = estimate.reached(known, search.question.target).get(search.seed)
    return math.inf if end is None else search.question.value(end)


def _take(search: Search, group: _Group, seen: Observation) -> None:
    """Take the result of a training, and replace each candidate whose value with the new setting is better."""
    best = math.inf
    for place, (known, other) in enumerate(zip(group.members, group.changed, strict=True)):
        other.curves[search.seed] = seen
        score = _score(search, other)
        if score < _score(search, known):
            search.known[known.candidate.name] = other
            group.members[place] = other
        best = min(best, score)
    assert search.question.target is not None
    target = search.question.target
    missing = [target.missing(getattr(score, target.measure)) for score in seen.scores]
    _note(group, best, min(missing, default=1.0))


def _note(group: _Group, score: float, missing: float) -> None:
    """Tell the search the score of its trial. ``missing``: the distance from the goal, if it was not reached."""
    asked, place = group.asked
    is_reached = math.isfinite(score)
    if not is_reached:
        reached = [trial.score for trial in group.values.trials if trial.reached and trial.score is not None]
        score = max(reached, default=1.0) * (1 + _WORSE * missing)
    value = group.values.grid.value(place)
    group.values.take(asked, Trial(place, value, "", score, is_reached, False, {}))
