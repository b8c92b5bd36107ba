"""Decides the claims of a study: compares a technique with its twin seed by seed, and checks learning rates."""

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
    """The measured values of a claim.

    values    for each seed the ratio twin / technique, or the difference in points, or the technique's own value
    lost      why the technique has lost: some of its seeds did not reach the target. There are no ``values`` then
    censored  some values are lower bounds, because the twin ended before the target
    lost_by   if the technique has lost: the ratios, with 0 for its seeds that did not reach the target; empty if a
              seed of the twin did not reach it
    """

    values: list[float]
    lost: str = ""
    censored: bool = False
    lost_by: tuple[float, ...] = ()

    def decide(self, claim: str, expected: Expected, unit: str) -> Claim:
        """Decide whether the mean lies within the bounds.

        If the technique has lost, the claim fails. A claim without a lower bound says that the technique is not ahead:
        ``lost_by`` decides it.
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
    """Return the measured values of one claim, seed by seed. ``found``: the runs on one back end."""
    labels = [*study.variants_of(expected.case)]
    twin = expected.twin or labels[0]
    technique = expected.technique or labels[-1]
    rows = found.rows(sweep=expected.case, **expected.at)
    if expected.alone:
        return Factors([float(value) for value in rows[rows["variant"] == technique][expected.column].astype(float)])
    return factors(rows, expected.column, twin, technique, expected.points)


def factors(rows: pd.DataFrame, column: str, twin: str, technique: str, points: bool = False) -> Factors:
    """Return the ratio twin / technique of a column, or the difference technique - twin in points, by seed.

    For times to a target: if the twin does not reach it, its training time counts, which gives a lower bound; if the
    technique does not reach it, it has lost. If a value of another column is unknown, there are no values.
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
    """Decide one claim from the runs on one back end."""
    about = f"{study.technique}, " if study.technique else ""
    text = f"{about}{expected.case}: {expected.claim}" if len(study.cases) > 1 or about else expected.claim
    unit = " points" if expected.points else "" if expected.alone else " times"
    return factors_of(study, found, expected).decide(text, expected, unit)


def claims_of(study: Study, found: Results) -> Claims:
    """Decide all claims of a study from the runs on one back end."""
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
    """Return the learning rate with which most seeds of a variant reach the target; of several, the fastest one.

    If no run reaches the target, return the rate with the highest mean accuracy.
    """
    known = rows.assign(reached=rows[_TIME_TO_TARGET].notna(), at_s=rows[_TIME_TO_TARGET].fillna(rows["training_s"]))
    means = known.groupby("learning_rate")[["reached", "at_s", "accuracy"]].mean()
    by = ["reached", "at_s", "accuracy"] if rows[_TIME_TO_TARGET].notna().any() else ["accuracy"]
    return float(means.sort_values(by, ascending=[each == "at_s" for each in by]).index[0])


def well_chosen(rows: pd.DataFrame, stated: Mapping[str, str]) -> Claims:
    """Yield for every variant the claim that its stated learning rate is the best of those tried.

    The claim is not resolved if the best rate is the lowest or the highest one tried.
    """
    for variant, tried in rows.groupby("variant", sort=False):
        name = str(variant)
        known = sorted(tried["learning_rate"].unique())
        best = best_rate(tried)
        claim = f"{name}: of {', '.join(f'{each:g}' for each in known)} the best learning rate is {stated[name]}"
        if best in (known[0], known[-1]):
            yield unresolved(claim, "an end of those tried: a better one may lie beyond", f"{best:g}")
        else:
            yield decided(claim, f"{best:g}", best == float(stated[name]), "another is")
