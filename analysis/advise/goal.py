"""What the user wants: a target to reach, the quantity to minimise on the way there, and constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.suggest import nearest_or_all
from testbed.target import ACCURACY, LOSS, Target

TIME = "time"
BYTES = "bytes"
MONEY = "money"
MEASURES = (TIME, BYTES, MONEY)


@dataclass(frozen=True, slots=True)
class Goal:
    """What to reach, and at which cost.

    target  ``None`` if there is none: techniques are then compared by the cost of a training sample
    least   the quantity to minimise, one of ``MEASURES``
    """

    target: Target | None
    least: str = TIME


def read_goal(text: str | None, least: str, own: Target | None) -> Goal:
    """Return the goal that ``--goal`` and ``--least`` state. Raise ``ScenarioError`` if they are invalid.

    text  the value of ``--goal``; ``None`` if it was not given
    own   the scenario's target, used without ``--goal``
    """
    if least not in MEASURES:
        raise ScenarioError(f"--least: '{least}' is not one of {', '.join(MEASURES)}{_hint(least)}")
    if text is None:
        return Goal(own, least)
    name, equals, _ = text.partition("=")
    if name.strip() not in (ACCURACY, LOSS) or not equals:
        if name.strip() in MEASURES and not equals:
            raise ScenarioError(
                f"--goal {text}: write '--least {name.strip()}'; --goal is for the accuracy or loss to reach"
            )
        raise ScenarioError(
            f"--goal {text}: not a goal; write 'accuracy=0.9' (or 'accuracy=90 %'), or 'loss=2.5', and '--least "
            f"{'|'.join(MEASURES)}' for what to minimise on the way there"
        )
    try:
        target = Target.parsed(text)
    except ValueError as error:
        raise ScenarioError(f"--goal {text}: {error}") from error
    if target == Target(ACCURACY, 1):
        raise ScenarioError(f"--goal {text}: an accuracy is above 0 and below 1, such as 0.9")
    return Goal(target, least)


def _hint(word: str) -> str:
    return f" ({nearest_or_all(word, MEASURES, 3)})"


NO_UDP = "no-udp"
FP32 = "fp32"
POINTS = "points"
REQUIREMENTS = (NO_UDP, FP32)


@dataclass(frozen=True, slots=True)
class Constraints:
    """Requirements on techniques.

    no_udp  no unreliable datagrams
    fp32    every tensor must travel as float32
    points  by how much the final accuracy may be below that of the scenario's own technique (share); ``None``: any
    """

    no_udp: bool = False
    fp32: bool = False
    points: float | None = None


def read_constraints(texts: Sequence[str]) -> Constraints:
    """Return the constraints that ``--require`` states, such as ``no-udp``, ``fp32`` or ``points=1``.

    Raise ``ScenarioError`` for an unknown one.
    """
    given = [word.strip() for text in texts for word in text.split(",")]
    points = None
    for word in given:
        name, equals, value = word.partition("=")
        if name == POINTS and equals:
            points = _points(word, value)
        elif word not in REQUIREMENTS:
            raise ScenarioError(
                f"--require {word}: not a requirement; write {', '.join(REQUIREMENTS)}, or {POINTS}=1 (at most one "
                "point of accuracy lost)"
            )
    return Constraints(no_udp=NO_UDP in given, fp32=FP32 in given, points=points)


def _points(word: str, value: str) -> float:
    try:
        points = float(value)
    except ValueError:
        points = -1.0
    if not 0 <= points < 100:
        raise ScenarioError(f"--require {word}: expected points of accuracy from 0 to 100, such as {POINTS}=1")
    return points / 100
