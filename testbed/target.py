"""The target of a training on the test set: an accuracy or a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from testbed import numbers
from testbed.units import UnitError, parse_share

ACCURACY = "accuracy"
LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Target:
    """An accuracy of at least ``value`` (a share), or a loss of at most ``value``.

    >>> Target(LOSS, 2.5).is_met(2.41)
    True

    measure  ``accuracy`` or ``loss``: the column of a table of evaluations that is compared with ``value``
    value    the accuracy or loss to reach
    """

    measure: str
    value: float

    @classmethod
    def parsed(cls, text: str) -> Target:
        """Parse a user's text: ``0.95``, ``95 %``, ``accuracy=0.95`` or ``loss=2.5``.

        Raise ``ValueError`` for anything else; its message says what to write.
        """
        before, equals, after = text.partition("=")
        measure = before.strip() if equals else ACCURACY
        value = (after if equals else text).strip()
        if measure == LOSS:
            return cls(LOSS, _parsed_loss(value))
        if measure != ACCURACY:
            raise ValueError(f"'{measure}' is not a measure of learning; write accuracy=0.95 or loss=2.5")
        return cls(ACCURACY, _parsed_accuracy(value))

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that give a scenario this target and no other: ``training.target_loss=2.5``, for example."""
        other = LOSS if self.measure == ACCURACY else ACCURACY
        return f"training.target_{other}=null", f"training.target_{self.measure}={self.value!r}"

    @property
    def name(self) -> str:
        """The target as text after ``time to``: ``95 %``, or ``loss 2.5``."""
        return numbers.target(self.value) if self.measure == ACCURACY else f"loss {self.value:g}"

    @property
    def told(self) -> str:
        """The target as text after ``reached``: ``95 % accuracy``, or ``a loss of 2.5``."""
        return f"{self.name} accuracy" if self.measure == ACCURACY else f"a loss of {self.value:g}"

    @property
    def missed(self) -> str:
        """``below`` or ``above``: the side of the target on which a score misses it."""
        return "below" if self.measure == ACCURACY else "above"

    def is_met(self, score: Any) -> Any:
        """Return whether a score is at least as good as the target; for an array, an array of answers."""
        return score >= self.value if self.measure == ACCURACY else score <= self.value

    def missing(self, score: float) -> float:
        """Return the difference between a score and the target, or 0 if the score meets the target."""
        return max(0.0, self.value - score if self.measure == ACCURACY else score - self.value)

    def best(self, scores: Iterable[float]) -> float | None:
        """Return the best of the scores; ``None`` if there are none."""
        return max(scores, default=None) if self.measure == ACCURACY else min(scores, default=None)

    def worst(self, scores: Iterable[float]) -> float | None:
        """Return the worst of the scores; ``None`` if there are none."""
        return min(scores, default=None) if self.measure == ACCURACY else max(scores, default=None)

    def shown(self, score: float | None) -> str:
        """Return a score as text, with enough digits to show on which side of the target it is."""
        if self.measure == ACCURACY:
            return numbers.share_below(score, self.value)
        if score is None or isnan(score) or self.is_met(score):
            return score_text(LOSS, score)
        digits = next(digits for digits in range(4, 18) if float(f"{score:.{digits}g}") > self.value or digits == 17)
        return f"{score:.{digits}g}"


def target_in(training: Mapping[str, Any]) -> Target | None:
    """Return the target in the section ``training`` of a Plan; ``None`` if there is none."""
    for measure in (ACCURACY, LOSS):  # Plans of earlier releases have no loss
        if (value := training.get(f"target_{measure}")) is not None:
            return Target(measure, value)
    return None


def target_of_row(row: Mapping[str, Any]) -> Target | None:
    """Return the target for which a row of a comparison was made; ``None`` if there is none."""
    return None if row.get("target") is None else Target(row["target_measure"], row["target"])


def learning_of(target: Target | None) -> str:
    """Return the measure that curves and tables show: the target's measure, or the accuracy if there is no target."""
    return ACCURACY if target is None else target.measure


def score_text(measure: str, score: float | None) -> str:
    """Return a score as text: an accuracy in per cent, a loss with four digits."""
    if measure == ACCURACY:
        return numbers.share(score)
    return numbers.MISSING if score is None or isnan(score) else f"{score:.4g}"


def _parsed_accuracy(text: str) -> float:
    try:
        share = parse_share(text)
    except UnitError:
        raise ValueError(f"'{text}' is not an accuracy; write '95 %' or 0.95") from None
    if not 0 < share <= 1:
        raise ValueError(f"{text} is not an accuracy between 0 and 100 %; write '95 %' or 0.95")
    return share


def _parsed_loss(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number; write loss=2.5") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"{text} is not a loss above 0; write loss=2.5")
    return value
