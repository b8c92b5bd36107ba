"""A technique beside its twin without it: what is expected of the two, as data, and the study that decides it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import BACK_ENDS
from analysis.metrics import mean_of, time_to_accuracy
from analysis.studies.claims import FAIL, INFINITY, PASS, Claim, Claims, between, decided, unresolved
from analysis.studies.columns import Column, setting
from analysis.studies.drawing import INK, log_axis
from analysis.studies.study import Panel, Results, Settings, Study, StudyRun, StudySweep

RATE = "optimizer.learning_rate"
SEEDS = 5
_TIMES_TO_TARGET = ("to_target_s", "time_to_target_s")
_TICKS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_COLORS = {PASS: "#009E73", FAIL: "#D55E00"}


class Factors(NamedTuple):
    """The twin's values over the technique's by seed, or the differences in points.

    lost      why the technique has lost, if it has; then there are no ``values``
    censored  some values are lower bounds: their twins ended before the target
    lost_by   of a technique that has lost: values with 0 for the seeds that never arrived, whose twins did; none where
              a twin did not arrive either
    """

    values: list[float]
    lost: str = ""
    censored: bool = False
    lost_by: tuple[float, ...] = ()

    def decide(self, claim: str, low: float = -INFINITY, high: float = INFINITY, unit: str = " times") -> Claim:
        """Decide whether the mean lies in [low, high].

        A technique that has lost fails, unless the claim is that it is not ahead: ``lost_by`` decides that.
        """
        if self.lost and low == -INFINITY:
            found = between(claim, self.lost_by, high=high, unit=unit)
            return replace(found, why="; ".join(filter(None, (self.lost, found.why))))
        if self.lost:
            return decided(claim, "–", False, self.lost)
        return between(claim, self.values, low, high, unit, censored=self.censored)


@dataclass(frozen=True, slots=True)
class Expected:
    """One claim: in ``case``, the twin's ``column`` over the technique's lies in [``low``, ``high``].

    ``points``: instead, the technique's share less the twin's, in points.
    ``twin`` and ``technique`` name other variants than the first and the last.
    """

    claim: str
    case: str
    column: str
    low: float = -INFINITY
    high: float = INFINITY
    points: bool = False
    twin: str = ""
    technique: str = ""


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """Variants of a scenario, the twin first and the technique last, in every case, and what is expected of them.

    Comparisons that share a case (same name, network and training) share the runs of variants that are equal.

    rates    learning rates that are tried for every variant alike, with one seed, in the first case; claims ask whether
             the rates that the variants state are the best of them. Empty: the learning rate does not matter
    on       back ends that can run it; empty: all
    """

    technique: str
    source: str
    scenario: str
    variants: Mapping[str, Settings]
    cases: Mapping[str, Settings]
    expected: tuple[Expected, ...]
    rates: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __call__(self) -> Study:
        """Return the study of this technique alone."""
        return study_of((self,), f"{self.technique} beside its twin without it", self.source)

    @property
    def search(self) -> str:
        """The sweep in which learning rates are tried."""
        return f"{next(iter(self.cases))}, learning rates"

    def sweeps(self, quick: bool) -> tuple[StudySweep, ...]:
        """Return a sweep for each case, and the search of learning rates."""
        cases = tuple(
            StudySweep(case, self._changed(case), {}, 2 if quick else SEEDS, self.scenario, self.on)
            for case in self.cases
        )
        grid = {RATE: self.rates}
        searched = StudySweep(self.search, self._changed(next(iter(self.cases))), grid, 1, self.scenario, ("simulate",))
        return (*cases, searched) if self.rates else cases

    def _changed(self, case: str) -> dict[str, Settings]:
        return {name: {**self.cases[case], **each} for name, each in self.variants.items()}

    def values(self, found: Results, expected: Expected, back_end: str) -> Factors:
        """What was measured, seed by seed."""
        twin, technique = expected.twin or next(iter(self.variants)), expected.technique or list(self.variants)[-1]
        rows = found.rows(sweep=expected.case, back_end=back_end)
        return factors(rows, expected.column, twin, technique, expected.points)


def factors(rows: pd.DataFrame, column: str, twin: str, technique: str, points: bool = False) -> Factors:
    """The twin's value over the technique's (or the difference in points) by seed.

    Of times to a target, a twin that does not reach it counts as if it had at its end, which gives a lower bound; a
    technique that does not has lost. Another column has no values if one of them is unknown.
    """
    ours, theirs = (rows[rows["variant"] == name].set_index("seed") for name in (technique, twin))
    base = theirs[column]
    if column in _TIMES_TO_TARGET:
        missing = int(ours[column].isna().sum())
        if missing:
            lost = f"{missing} of {len(ours)} seeds of {technique} did not reach the target"
            behind = theirs[column].reindex(ours.index) / ours[column].fillna(INFINITY)
            return Factors([], lost, lost_by=() if behind.isna().any() else tuple(map(float, behind)))
        base = theirs[column].fillna(theirs["training_s"])
    mine, seeds = ours[column], [seed for seed in ours.index if seed in theirs.index]
    if mine[seeds].isna().any() or base[seeds].isna().any():
        return Factors([])
    if points:
        return Factors([100 * (mine[seed] - base[seed]) for seed in seeds])
    censored = bool(theirs.loc[seeds, column].isna().any())
    return Factors([base[seed] / mine[seed] for seed in seeds], censored=censored)


def best_rate(rows: pd.DataFrame) -> float:
    """Return the learning rate with which most seeds of a variant reach the target, then soonest.

    Without a target in any run, that of the highest accuracy.
    """
    known = rows.assign(reached=rows["to_target_s"].notna(), at_s=rows["to_target_s"].fillna(rows["training_s"]))
    means = known.groupby("learning_rate")[["reached", "at_s", "accuracy"]].mean()
    by = ["reached", "at_s", "accuracy"] if rows["to_target_s"].notna().any() else ["accuracy"]
    return float(means.sort_values(by, ascending=[each == "at_s" for each in by]).index[0])


def round_s(each: StudyRun, first: int = 1) -> float:
    """Mean time from the end of one round to that of the next, from round ``first`` on (0 sets connections up).

    Not a round's own length: where one worker has its values sooner than another, its next round has begun by then.
    """
    ends = each.run.tables["rounds"].groupby("round")["t_s"].max().sort_index()
    late = ends[ends.index >= first - 1]
    return float((late.iloc[-1] - late.iloc[0]) / (len(late) - 1)) if len(late) > 1 else math.nan


def to_target_s(each: StudyRun) -> float | None:
    """Return the seconds to the scenario's own target accuracy."""
    target = each.run.plan["training"]["target_accuracy"]
    return None if target is None else time_to_accuracy(each.run, target)


def claim_of(comparison: TwinComparison, found: Results, expected: Expected, back_end: str) -> Claim:
    """Decide one claim on one back end."""
    text = f"{comparison.technique}, {expected.case}: {expected.claim}"
    text += "" if back_end == "simulate" else f" ({BACK_ENDS[back_end].label})"
    unit = " points" if expected.points else " times"
    return comparison.values(found, expected, back_end).decide(text, expected.low, expected.high, unit)


def claims_of(comparisons: Sequence[TwinComparison], found: Results) -> Claims:
    """All claims of these techniques, on every back end that ran, and whether their learning rates are well chosen."""
    for comparison, expected, back_end in _asked(comparisons, found):
        yield claim_of(comparison, found, expected, back_end)
    for comparison in comparisons:
        rows = found.rows(sweep=comparison.search)
        stated = {name: each[RATE] for name, each in comparison.variants.items() if RATE in each}
        yield from well_chosen(rows[rows["variant"].isin(stated)], stated)


def well_chosen(rows: pd.DataFrame, stated: Mapping[str, str]) -> Claims:
    """Whether every variant's stated learning rate is the best of those tried. At an end of them nothing is decided."""
    for variant, tried in rows.groupby("variant", sort=False):
        name, known = str(variant), sorted(tried["learning_rate"].unique())
        best = best_rate(tried)
        claim = f"{name}: of {', '.join(f'{each:g}' for each in known)} the best learning rate is {stated[name]}"
        if best in (known[0], known[-1]):
            yield unresolved(claim, "an end of those tried: a better one may lie beyond", f"{best:g}")
        else:
            yield decided(claim, f"{best:g}", best == float(stated[name]), "another is")


def _asked(comparisons: Sequence[TwinComparison], found: Results) -> Iterable[tuple[TwinComparison, Expected, str]]:
    for comparison in comparisons:
        for expected in comparison.expected:
            ran = found.rows(sweep=expected.case)["back_end"].unique()
            yield from ((comparison, expected, back_end) for back_end in ran)


def table_of(comparisons: Sequence[TwinComparison], found: Results) -> pd.DataFrame:
    """Technique, claim, back end, measured, wanted, verdict: one row per claim and back end."""
    rows = []
    for comparison, expected, back_end in _asked(comparisons, found):
        claim = claim_of(comparison, found, expected, back_end)
        rows.append({"technique": comparison.technique, "case": expected.case, "claim": expected.claim,
                     "back end": BACK_ENDS[back_end].label, "measured": claim.measured, "verdict": claim.verdict,
                     "why": claim.why})  # fmt: skip
    return pd.DataFrame(rows)


def draw_forest(comparisons: tuple[TwinComparison, ...], axes: Axes, found: Results) -> None:
    """For every claim on times, the mean and interval of its factor, and a bracket where it is expected."""
    shown = [each for each in _asked(comparisons, found) if not each[1].points]
    labels = []
    for place, (comparison, expected, back_end) in enumerate(reversed(shown)):
        values = comparison.values(found, expected, back_end).values
        claim = claim_of(comparison, found, expected, back_end)
        color = _COLORS.get(claim.verdict, "#E69F00")
        low, high = max(expected.low, 0.05), min(expected.high, 50.0)
        axes.plot([low, high], [place, place], color=color, alpha=0.18, linewidth=7, solid_capstyle="butt", zorder=1)
        if values:
            mean = mean_of(values)
            width = mean.half_width if mean.count > 1 else 0.0
            axes.errorbar(mean.value, place, xerr=width, color=color, marker="o", markersize=5, capsize=2.5, zorder=3,
                          markeredgecolor="white", markeredgewidth=0.6)  # fmt: skip
        others = [other for other in comparison.expected if other.case == expected.case and not other.points]
        which = f" ({expected.claim.split(':')[0]})" if len(others) > 1 else ""
        labels.append(f"{comparison.technique}: {expected.case}{which}"
                      + ("" if back_end == "simulate" else f", {BACK_ENDS[back_end].label}"))  # fmt: skip
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=7.5)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    log_axis(axes, "x")
    axes.grid(axis="y", visible=False)
    known = [value for comparison, expected, back_end in shown
             for value in comparison.values(found, expected, back_end).values]  # fmt: skip
    if known:
        axes.set_xlim(min(0.5, 0.8 * min(known)), max(2.5, 1.25 * max(known)))
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in _TICKS if low <= tick <= high])


def _once(runs: pd.DataFrame) -> pd.DataFrame:
    """Return every run once: comparisons that share a case have some in common."""
    place = [name for name in ("sweep", "variant", "learning_rate", "back_end", "seed") if name in runs]
    return runs.drop_duplicates(place, ignore_index=True)


def study_of(comparisons: tuple[TwinComparison, ...], title: str, source: str) -> Study:
    """Return the study of one technique, or of several together."""
    columns: dict[str, Column] = {"learning_rate": setting(RATE), "round_s": round_s, "to_target_s": to_target_s}
    for each in comparisons:
        columns |= each.columns
    return Study(
        title=title, source=source, columns=columns, derive=_once, claims=partial(claims_of, comparisons),
        sweeps=lambda quick: [sweep for each in comparisons for sweep in each.sweeps(quick)],
        table=partial(table_of, comparisons), all_back_ends=True,
        panels=(Panel("Times better than the twin without it", draw=partial(draw_forest, comparisons),
                      x_label="twin's time / technique's time (bars: what is expected)"),),
        size_in=(7.2, 1.2 + 0.27 * sum(len(each.expected) for each in comparisons)),
    )  # fmt: skip
