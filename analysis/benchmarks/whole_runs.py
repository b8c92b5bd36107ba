"""What techniques take in whole runs of a scenario: as much of each as decides whether it is the best.

A technique is followed with one seed after the other, until its mean over all seeds is known, or is certain to be above
both that of another technique and the interval that the advice gives for it. So nothing is decided otherwise than by
whole runs of everything to the end, at a fraction of their cost. Every run is kept in a file, and not made twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from analysis.advise import pool
from analysis.advise.observation import STOPPED, Limits, Observation
from testbed.plan.model import Plan
from testbed.results import atomic


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run with one seed.

    value  the time, bytes or money at the goal; ``None`` if the goal was not reached, or not before ``limit``
    limit  the value at which the run was to be stopped; ``None`` for no limit
    """

    value: float | None
    limit: float | None
    status: str
    message: str = ""

    @property
    def at_least(self) -> float:
        """The value, or a lower bound of it; infinite if the goal was not reached."""
        if self.value is not None:
            return self.value
        return self.limit if self.status == STOPPED and self.limit is not None else math.inf


@dataclass(slots=True)
class Followed:
    """A technique and its runs.

    high  the upper end of its interval in the advice: it does not matter by how much its mean is above
    path  the file that stores its runs
    runs  by seed
    """

    name: str
    high: float
    path: Path
    runs: dict[int, WholeRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a technique's value over seeds, or a lower bound of it if ``is_exact`` is false."""

    value: float
    is_exact: bool


@dataclass(slots=True)
class WholeRuns:
    """The whole runs of one scenario's techniques.

    seeds       the seeds of the means
    plan_of     returns a technique's Plan with a seed
    value_of    returns the time, bytes or money at the goal; ``None`` if the run did not reach it
    limits      returns the limits at which a run has certainly taken more than a value
    guess       the assumed lowest mean as long as none is known
    techniques  the most promising one first
    """

    seeds: Sequence[int]
    plan_of: Callable[[str, int], Plan]
    value_of: Callable[[Observation], float | None]
    limits: Callable[[float], Limits]
    guess: float
    techniques: Sequence[Followed]

    def __post_init__(self) -> None:
        for each in self.techniques:
            if each.path.is_file():
                kept = json.loads(each.path.read_text(encoding="utf-8"))
                each.runs = {int(seed): WholeRun(**run) for seed, run in kept.items() if int(seed) in self.seeds}

    def means(self, jobs: int) -> Mapping[str, Mean]:
        """Make the missing runs, ``jobs`` at once, and return the mean of each technique."""
        by_name = {each.name: each for each in self.techniques}
        asked: dict[tuple[str, int], float] = {}
        for task, seen in pool.simulate_all(self._missing(asked), jobs):
            name, seed = task.key
            limit = asked.pop(task.key)
            run = WholeRun(self.value_of(seen), None if math.isinf(limit) else limit, seen.status, seen.message)
            by_name[name].runs[seed] = run
            kept = {seed: asdict(each) for seed, each in by_name[name].runs.items()}
            atomic.write_json(by_name[name].path, kept)
        return {each.name: self._mean(each) for each in self.techniques}

    def _mean(self, each: Followed) -> Mean:
        values = [run.at_least for run in each.runs.values()]
        is_exact = len(values) == len(self.seeds) and all(run.value is not None for run in each.runs.values())
        return Mean(sum(values) / len(self.seeds), is_exact or any(map(math.isinf, values)))

    def _enough(self, each: Followed) -> float:
        """Return the value from which on a technique's mean need not be known more exactly."""
        exact = [mean.value for mean in map(self._mean, self.techniques) if mean.is_exact and math.isfinite(mean.value)]
        return max(min(exact, default=self.guess), each.high)

    def _missing(self, asked: dict[tuple[str, int], float]) -> Iterator[pool.Task[tuple[str, int]]]:
        """Yield the runs to make, and note their limits in ``asked``. Each depends on the results so far."""
        while (found := self._next(asked)) is not None:
            each, seed = found
            others = sum(run.at_least for other, run in each.runs.items() if other != seed)
            limit = math.inf if each is self.techniques[0] else len(self.seeds) * self._enough(each) - others
            asked[each.name, seed] = limit
            yield pool.Task((each.name, seed), self.plan_of(each.name, seed), self.limits(limit))

    def _next(self, asked: Mapping[tuple[str, int], float]) -> tuple[Followed, int] | None:
        """Return the next technique and seed to run; preferably a technique of which no run is in progress."""
        under_way = {name for name, _ in asked}
        for free in (True, False):
            for each in self.techniques:
                if free and each.name in under_way and each is not self.techniques[0]:
                    continue
                seed = self._next_seed(each, asked)
                if seed is not None:
                    return each, seed
        return None

    def _next_seed(self, each: Followed, asked: Mapping[tuple[str, int], float]) -> int | None:
        mean = self._mean(each)
        if mean.is_exact or mean.value >= _ROUNDING * self._enough(each):
            return None
        left = [seed for seed in self.seeds if each.runs.get(seed, _NONE).value is None]
        return next((seed for seed in left if (each.name, seed) not in asked), None)


_NONE = WholeRun(None, 0.0, STOPPED)
_ROUNDING = 1 - 1e-9
