"""What a figure from a paper consists of: sweeps to run, a table derived from the runs, a picture, and assertions.

A figure declares; it runs nothing. ``testbed figure`` runs the sweeps and hands the runs back.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure as Picture

from analysis.load import Run
from analysis.metrics import mean_of

if TYPE_CHECKING:
    import pandas as pd

PASS, FAIL, UNRESOLVED = "pass", "fail", "not resolved"
_PUBLISHED = Path(__file__).parent / "published.csv"


@dataclass(frozen=True, slots=True)
class Study:
    """Runs of one scenario file: every variant with every setting of the grid, ``seeds`` times.

    ``variants``: label of a series to the settings that make it. ``needs``: label to the techniques (``axis=kind``)
    without which the series is left out and listed. ``back_end``: where it runs, whatever the command says; empty: as
    the command says.
    """

    name: str
    scenario: str
    variants: Mapping[str, Mapping[str, str]]
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 1
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    back_end: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run, and where it belongs."""

    study: str
    variant: str
    settings: Mapping[str, str]
    seed: int
    run: Run


@dataclass(frozen=True, slots=True)
class Assertion:
    """One claim with its measured value. ``verdict``: pass, fail or not resolved; ``why`` explains the last two."""

    claim: str
    measured: str
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """A number from a paper: drawn as a labelled overlay, never mixed with what was measured."""

    series: str
    x: float
    y: float
    unit: str
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """See the module's docstring. ``derive`` makes one tidy frame; the others see nothing else.

    ``table`` makes the small table that goes beside the picture, if there is one.
    """

    title: str
    source: str
    needs: tuple[str, ...]
    studies: Callable[[bool], tuple[Study, ...]] | None = None
    derive: Callable[[Sequence[Sample]], pd.DataFrame] | None = None
    draw: Callable[[Picture, pd.DataFrame, Sequence[Published]], None] | None = None
    check: Callable[[pd.DataFrame], list[Assertion]] | None = None
    size_in: tuple[float, float] = (9.0, 3.6)
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None


def published(figure: str) -> list[Published]:
    """The numbers of the literature for one figure, from ``published.csv``."""
    with open(_PUBLISHED, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["figure"] == figure]
    return [Published(row["series"], float(row["x"] or "nan"), float(row["y"]), row["unit"], row["source"],
                      row["confidence"]) for row in rows]  # fmt: skip


def between(claim: str, values: Sequence[float], low: float, high: float, unit: str = "") -> Assertion:
    """Whether the mean lies in [low, high]: resolved only if its whole 95 % interval is on one side of each bound.

    One value alone has no interval: it is decided only by ``exactly``.
    """
    if not len(values):
        return Assertion(claim, "no value", UNRESOLVED, "no run gave a value")
    mean = mean_of(values)
    told = f"{mean.value:.4g} ± {mean.half_width:.2g}{unit} ({mean.count} seeds)"
    lower, upper = mean.value - mean.half_width, mean.value + mean.half_width
    if low <= lower and upper <= high:
        return Assertion(claim, told, PASS)
    wanted = f"wanted {_range(low, high)}"
    if upper < low or lower > high:
        return Assertion(claim, told, FAIL, wanted)
    return Assertion(claim, told, UNRESOLVED, f"{wanted}; the 95 % interval reaches across a bound: more seeds")


def exactly(claim: str, value: float, low: float, high: float, unit: str = "") -> Assertion:
    """For what is the same for every seed, such as bytes and times of modelled computation."""
    inside = low <= value <= high
    return Assertion(
        claim, f"{value:.6g}{unit}", PASS if inside else FAIL, "" if inside else f"wanted {_range(low, high)}"
    )


def ordered(claim: str, groups: Mapping[str, Sequence[float]], slack: float = 0.0) -> Assertion:
    """Whether means fall in the order given. Neighbours whose intervals overlap are not resolved.

    Nor is anything where a series has fewer values than another: a mean of those seeds that reached a target says
    nothing about those that did not.
    """
    means = {name: mean_of(values) for name, values in groups.items() if len(values)}
    told = ", ".join(f"{name} {mean.value:.4g}" for name, mean in means.items())
    if len(means) < len(groups):
        return Assertion(claim, told, UNRESOLVED, "some series have no value")
    if len({mean.count for mean in means.values()}) > 1:
        counts = ", ".join(f"{name} {mean.count}" for name, mean in means.items())
        return Assertion(claim, told, UNRESOLVED, f"not every seed has a value in every series: {counts}")
    worst = PASS
    pairs = list(means.items())
    for (_, above), (_, below) in pairwise(pairs):
        gap = above.value - below.value * (1 - slack)
        reach = (above.half_width**2 + below.half_width**2) ** 0.5
        if above.count == below.count == 1:
            reach = 0.0
        if gap < 0 and -gap > reach:
            return Assertion(claim, told, FAIL, "the order is another")
        worst = UNRESOLVED if abs(gap) <= reach and reach > 0 else worst
    return Assertion(claim, told, worst, "" if worst == PASS else "intervals overlap: more seeds")


def in_order(claim: str, values: Mapping[str, float], slack: float = 0.0) -> Assertion:
    """Whether values that are the same for every seed fall in the order given; ``slack``: share that may be lacking."""
    told = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    falls = all(below <= above * (1 + slack) for above, below in pairwise(values.values()))
    return Assertion(claim, told, PASS if falls else FAIL, "" if falls else "the order is another")


def unresolved(claim: str, why: str) -> Assertion:
    """A claim that this release cannot look at."""
    return Assertion(claim, "–", UNRESOLVED, why)


def column(frame: pd.DataFrame, name: str, **where: Any) -> list[float]:
    """Values of one column in the rows where the others have these values; missing ones are left out."""
    rows = frame
    for key, value in where.items():
        rows = rows[rows[key] == value]
    return [float(value) for value in rows[name].dropna()]


def paired(frame: pd.DataFrame, name: str, first: str, second: str) -> list[tuple[float, float]]:
    """Values of one column for two variants, seed by seed; seeds that lack either are left out."""
    by_seed = [frame[frame["variant"] == variant].set_index("seed")[name].dropna() for variant in (first, second)]
    shared = [seed for seed in by_seed[0].index if seed in by_seed[1].index]
    return [(float(by_seed[0][seed]), float(by_seed[1][seed])) for seed in shared]


def _range(low: float, high: float) -> str:
    if low == float("-inf"):
        return f"at most {high:.4g}"
    return f"at least {low:.4g}" if high == float("inf") else f"{low:.4g} to {high:.4g}"
