"""The answer: every candidate with what it takes to the goal, how sure that is, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.advise.candidates import Read
from analysis.advise.elsewhere import Elsewhere
from analysis.advise.estimate import Estimate, Known
from analysis.advise.goal import Goal
from analysis.advise.tuning import Tuned
from analysis.advise.why import Split
from testbed.errors import ScenarioError
from testbed.scenario import Scenario
from testbed.scenario.sweep import TuningRange
from testbed.target import Target, learning_of

RANKED = "ranked"
BEATEN = "beaten"
MISSED = "missed"
UNKNOWN = "unknown"
REFUSED = "refused"
BEST = 3
"""Techniques whose scenarios are written."""


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate in the table.

    outcome   ``ranked``: it reaches the goal | ``beaten``: it had not, when it had taken more than the best one's
              interval | ``missed``: it does not in its rounds | ``unknown``: not simulated, or not for long enough |
              ``refused``: it cannot run, or must not
    why       more about the outcome; empty if there is nothing
    estimate  of what is to be least: seconds, bytes or money; of ``beaten``, ``value`` is a lower bound
    settings  of the technique, as texts ``path=value`` that change the scenario
    steps     to a loss, as a multiple of those of synchronous training, where that is known without a training
    rounds    to the goal; ``time_s``, ``wan_bytes``, ``usd``: until then; ``accuracy``, ``loss``: the last ones seen
    """

    name: str
    summary: str
    outcome: str
    why: str = ""
    estimate: Estimate | None = None
    seeds: int = 0
    rounds: float | None = None
    time_s: float | None = None
    wan_bytes: float | None = None
    usd: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    round_s: float | None = None
    settings: tuple[str, ...] = ()
    steps: float | None = None

    def score(self, target: Target | None) -> float | None:
        """Return the last score that was seen, of the measure that is to be reached."""
        found: float | None = getattr(self, learning_of(target))
        return found


@dataclass(frozen=True)
class Advice:
    """Which technique for a network. ``rows``: the best first, then what was beaten, missed, not simulated, refused.

    name         of the scenario
    notes        what was not decided, and why
    simulations  how many were made
    splits       where the time of the first two to the goal goes
    elsewhere    who would be the best if all rates, delays or payloads were others
    tuning       the range in which a setting was searched for each technique; ``tuned``: what was found, by name
    """

    name: str
    goal: Goal
    rows: tuple[Row, ...]
    known: Mapping[str, Known] = field(repr=False)
    read: Read = field(repr=False)
    notes: tuple[str, ...] = ()
    simulations: int = 0
    splits: Mapping[str, Split] = field(default_factory=dict)
    elsewhere: tuple[Elsewhere, ...] = ()
    tuning: TuningRange | None = None
    tuned: Mapping[str, Tuned] = field(default_factory=dict)

    @property
    def ranked(self) -> list[Row]:
        """The techniques that reach the goal, the best first."""
        return [row for row in self.rows if row.outcome == RANKED]

    def scenarios(self, count: int = BEST) -> dict[str, Scenario]:
        """Return the scenarios of the best techniques, by name, ready to be run."""
        good = [row for row in self.rows if row.outcome in (RANKED, BEATEN)]
        return {row.name: self.scenario(row) for row in good[:count]}

    def scenario(self, row: Row) -> Scenario:
        """Return the user's scenario with the technique of a row, on its own back end if that takes it."""
        return self.read(self.changes(row), None)

    def changes(self, row: Row) -> list[str]:
        """Return what makes the scenario of a row of the user's, as texts ``path=value``."""
        changes = [*row.settings, *self._length(row.name)]
        try:
            self.read(changes, None)
        except ScenarioError:
            return [*changes, "run.on=simulate"]
        return changes

    def _length(self, name: str) -> Sequence[str]:
        known = self.known[name]
        if self.goal.target is None or not known.rounds:
            return []
        return [
            f"training.rounds={known.rounds}",
            f"training.evaluate_every={known.every}",
            *self.goal.target.settings,
        ]


Records = list[dict[str, Any]]
