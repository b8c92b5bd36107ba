"""Decides what a study expects: a technique beside its twin, seed by seed, and whether learning rates fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from analysis.studies.claims import INFINITY, Claim, Claims, between, decided, exactly, unresolved
from analysis.studies.results import Results
from analysis.studies.study import RATE, Expected, Study, search_of

_TIME_TO_TARGET = "time_to_target_s"


class Factors(NamedTuple):
    """The twin's values over the technique's by seed, or the differences in points, or the technique's own values.

    lost      why the technique has lost, if it has; then there are no ``values``
    censored  some values are lower bounds: their twins ended before the target
    lost_by   of a technique that has lost: values with 0 for the seeds that never arrived, whose twins did; none where
              a twin did not arrive either
    """

    values: list[float]
    lost: str = ""
    censored: bool = False
    lost_by: tuple[float, ...] = ()

    def decide(self, claim: str, expected: Expected, unit: str) -> Claim:
        """Decide whether the mean lies in the bounds.

        A technique that has lost fails, unless the claim is that it is not ahead: ``lost_by`` decides that.
        """
        low = expected.low
        high = expected.high
        if self.lost and low == -INFINITY:
            found = between(claim, self.lost_by, high=high, unit=unit)
            return replace(found, why="; ".join(filter(None, (self.lost, found.why))))
        if self.lost:
            return decided(claim, "–", False, self.lost)
        if expected.exact and self.values and not any(map(math.isnan, self.values)):
            outside = [value for value in self.values if not low <= value <= high]
            return exactly(claim, (outside or self.values)[0], low, high, unit)
        return between(claim, self.values, low, high, unit, censored=self.censored)


def factors_of(study: Study, found: Results, expected: Expected) -> Factors:
    """Return what was measured of one claim, seed by seed; of runs of one back end."""
    labels = [*study.variants_of(expected.case)]
    twin = expected.twin or labels[0]
    technique = expected.technique or labels[-1]
    rows = found.rows(sweep=expected.case, **expected.at)
    if expected.alone:
        return Factors([float(value) for value in rows[rows["variant"] == technique][expected.column].astype(float)])
    return factors(rows, expected.column, twin, technique, expected.points)


def factors(rows: pd.DataFrame, column: str, twin: str, technique: str, points: bool = False) -> Factors:
    """The twin's value over the technique's (or the difference in points) by seed.

    Of times to a target, a twin that does not reach it counts as if it had at its end, which gives a lower bound; a
    technique that does not has lost. Another column has no values if one of them is unknown.
    """
    ours, theirs = (rows[rows["variant"] == name].set_index("seed") for name in (technique, twin))
    base = theirs[column]
    if column == _TIME_TO_TARGET:
        missing = int(ours[column].isna().sum())
        if missing:
            lost = f"{missing} of {len(ours)} seeds of {technique} did not reach the target"
            behind = theirs[column].reindex(ours.index) / ours[column].fillna(INFINITY)
            return Factors([], lost, lost_by=() if behind.isna().any() else tuple(map(float, behind)))
        base = theirs[column].fillna(theirs["training_s"])
    mine = ours[column]
    seeds = [seed for seed in ours.index if seed in theirs.index]
    if mine[seeds].isna().any() or base[seeds].isna().any():
        return Factors([])
    if points:
        return Factors([100 * float(mine[seed] - base[seed]) for seed in seeds])
    censored = bool(theirs.loc[seeds, column].isna().any())
    return Factors([float(base[seed] / mine[seed]) for seed in seeds], censored=censored)


def claim_of(study: Study, found: Results, expected: Expected) -> Claim:
    """Decide one claim, by runs of one back end."""
    about = f"{study.technique}, " if study.technique else ""
    text = f"{about}{expected.case}: {expected.claim}" if len(study.cases) > 1 or about else expected.claim
    unit = " points" if expected.points else "" if expected.alone else " times"
    return factors_of(study, found, expected).decide(text, expected, unit)


def claims_of(study: Study, found: Results) -> Claims:
    """Decide all claims of a study, by runs of one back end."""
    for part in study.parts or (study,):
        known = set(found.runs["sweep"])
        yield from (claim_of(part, found, each) for each in part.expected if each.case in known)
        if part.claims is not None:
            yield from part.claims(found)
    for part in study.parts or (study,):
        for case in part.searched:
            rows = found.rows(sweep=search_of(case))
            stated = {label: each[RATE] for label, each in part.variants_of(case).items() if RATE in each}
            for claim in well_chosen(rows[rows["variant"].isin(stated)], stated):
                yield replace(claim, claim=f"{case}, {claim.claim}") if len(part.searched) > 1 else claim


def best_rate(rows: pd.DataFrame) -> float:
    """Return the learning rate with which most seeds of a variant reach the target, then soonest.

    Without a target in any run, that of the highest accuracy.
    """
    known = rows.assign(reached=rows[_TIME_TO_TARGET].notna(), at_s=rows[_TIME_TO_TARGET].fillna(rows["training_s"]))
    means = known.groupby("learning_rate")[["reached", "at_s", "accuracy"]].mean()
    by = ["reached", "at_s", "accuracy"] if rows[_TIME_TO_TARGET].notna().any() else ["accuracy"]
    return float(means.sort_values(by, ascending=[each == "at_s" for each in by]).index[0])


def well_chosen(rows: pd.DataFrame, stated: Mapping[str, str]) -> Claims:
    """Whether every variant's stated learning rate is the best of those tried. At an end of them nothing is decided."""
    for variant, tried in rows.groupby("variant", sort=False):
        name = str(variant)
        known = sorted(tried["learning_rate"].unique())
        best = best_rate(tried)
        claim = f"{name}: of {', '.join(f'{each:g}' for each in known)} the best learning rate is {stated[name]}"
        if best in (known[0], known[-1]):
            yield unresolved(claim, "an end of those tried: a better one may lie beyond", f"{best:g}")
        else:
            yield decided(claim, f"{best:g}", best == float(stated[name]), "another is")
