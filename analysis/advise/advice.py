"""The answer: what each candidate takes to reach the goal, how certain this is, and why some are not ranked."""

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
"""The number of techniques whose scenarios are written."""


@dataclass(frozen=True, slots=True)
class Row:
    """A technique in the table.

    outcome   ``ranked``: it reaches the goal | ``beaten``: it did not reach the goal before it had taken more than the
              upper end of the best one's interval | ``missed``: it does not reach the goal in its rounds |
              ``unknown``: it was not simulated, or not for long enough | ``refused``: it cannot run, or the user's
              requirements forbid it
    why       more about the outcome; may be empty
    estimate  of the quantity to be minimised: seconds, bytes or US dollars. If ``beaten``, ``value`` is a lower bound
    seeds     number of seeds that reached the goal; if none did, number of trained seeds
    rounds    number of rounds to the goal; ``time_s``, ``wan_bytes``, ``usd``: what these take
    accuracy  the last one seen; ``loss`` likewise
    round_s   mean time of a round
    settings  the overrides of the scenario that select the technique, as texts ``path=value``
    steps     number of steps to a loss, relative to synchronous training, if it is known without a training
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
        """Return the last accuracy or loss that was seen: the one that ``target`` is about."""
        found: float | None = getattr(self, learning_of(target))
        return found


@dataclass(frozen=True)
class Advice:
    """The ranking of techniques for a scenario.

    name         of the scenario
    rows         the ranked techniques, best first; then those beaten, missed, unknown and refused
    known        the findings about each candidate, by name
    read         reads the user's scenario with overrides
    notes        what could not be decided, and why
    simulations  number of simulations
    splits       the time to the goal of the two best techniques, split into parts
    elsewhere    values of the best techniques for other rates, delays and sizes of the model
    tuning       the range in which a setting was searched for each technique; ``None`` without tuning
    tuned        the results of tuning, by name of the technique
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
        """Return the scenarios of the best techniques that are ranked or beaten, by name, ready to run."""
        good = [row for row in self.rows if row.outcome in (RANKED, BEATEN)]
        return {row.name: self.scenario(row) for row in good[:count]}

    def scenario(self, row: Row) -> Scenario:
        """Return the user's scenario with the technique of a row, on its own back end if that can run the technique."""
        return self.read(self.changes(row), None)

    def changes(self, row: Row) -> list[str]:
        """Return the overrides that turn the user's scenario into that of a row, as texts ``path=value``."""
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
