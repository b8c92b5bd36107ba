"""Claims about results, which runs decide: pass, fail, or not resolved.

If a quantity varies with the seed, the 95 % confidence interval of its mean must lie within the bounds. If it is the
same for every seed, as are bytes and times of modelled computation, its value decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.confidence import Mean, mean_of

PASS = "pass"
FAIL = "fail"
UNRESOLVED = "not resolved"
INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement with its measured value. ``verdict``: pass, fail or not resolved; ``why`` explains the last two."""

    claim: str
    measured: str
    verdict: str
    why: str = ""


Claims = Iterator[Claim]
"""The claims of a study, as its ``claims`` yields them."""


def between(
    claim: str,
    values: Sequence[float],
    low: float = -INFINITY,
    high: float = INFINITY,
    unit: str = "",
    censored: bool = False,
) -> Claim:
    """Decide whether the mean over seeds lies in [low, high]. It is not resolved if its interval crosses a bound.

    censored  some values are lower bounds: they can show that the mean is large, but not that it is small
    """
    if not len(values):
        return Claim(claim, "no value", UNRESOLVED, "no run gave a value")
    if missing := _missing(values):
        return unresolved(claim, f"{missing} of {len(values)} runs gave no value")
    mean = mean_of(values)
    measured = _measured(mean, unit)
    lower = mean.value - mean.half_width
    upper = INFINITY if censored else mean.value + mean.half_width
    if low <= lower and upper <= high:
        return Claim(claim, measured, PASS)
    wanted = f"wanted {_range(low, high)}"
    if upper < low or lower > high:
        return Claim(claim, measured, FAIL, wanted)
    if censored:
        return unresolved(claim, f"{wanted}; some values are lower bounds: a run ended before the target", measured)
    why = "one seed has no interval" if mean.count == 1 else "the 95 % interval reaches across a bound"
    return Claim(claim, measured, UNRESOLVED, f"{wanted}; {why}: more seeds")


def _measured(mean: Mean, unit: str) -> str:
    if mean.count == 1:
        return f"{mean.value:.4g}{unit} (1 seed)"
    half_width = f"{mean.half_width:.2g}" if mean.half_width == 0 or mean.half_width >= 0.001 else "<0.001"
    return f"{mean.value:.4g} ± {half_width}{unit} ({mean.count} seeds)"


def exactly(claim: str, value: float, low: float = -INFINITY, high: float = INFINITY, unit: str = "") -> Claim:
    """Decide whether a value that is the same for every seed lies in [low, high]."""
    inside = low <= value <= high
    return decided(claim, f"{value:.6g}{unit}", inside, f"wanted {_range(low, high)}")


def decided(claim: str, measured: str, holds: bool, why: str = "") -> Claim:
    """Return a claim that the caller has decided; ``why`` is shown if it does not hold."""
    return Claim(claim, measured, PASS if holds else FAIL, "" if holds else why)


def unresolved(claim: str, why: str, measured: str = "–") -> Claim:
    """Return a claim that these runs cannot decide."""
    return Claim(claim, measured, UNRESOLVED, why)


def _missing(values: Sequence[float]) -> int:
    return sum(math.isnan(value) for value in values)


def _range(low: float, high: float) -> str:
    if low == -INFINITY:
        return f"at most {high:.4g}"
    return f"at least {low:.4g}" if high == INFINITY else f"{low:.4g} to {high:.4g}"
