"""The virtual world against the real one: errors of a study that ran its points on several back ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analysis.metrics import relative_error
from analysis.studies.claims import Claim, Claims, between, decided, exactly
from analysis.studies.study import Results, select

REAL, VIRTUAL = "emulate", "simulate"


def shown(found: Results) -> Results:
    """Return the runs of one back end, for pictures with room for one: the virtual world's, or the first that ran."""
    ran = list(found.runs["back_end"].unique())
    only = {"back_end": VIRTUAL if VIRTUAL in ran else ran[0]}
    curves = select(found.curves, only) if len(found.curves) else found.curves
    return replace(found, runs=select(found.runs, only), curves=curves)


def errors(found: Results, variant: str, column: str = "round_time_s") -> list[float]:
    """Simulated against emulated, seed by seed, as a share of the emulated value; none without both."""
    pairs = found.pairs(column, VIRTUAL, REAL, by="back_end", variant=variant)
    return [relative_error(simulated, emulated) for simulated, emulated in pairs]


def same_bits(found: Results, variant: str) -> Claim:
    """Decide whether every emulated run ended with the parameters of its simulation."""
    emulated = found.rows(variant=variant, back_end=REAL)
    pairs = found.pairs("parameters_sha256", REAL, VIRTUAL, by="back_end", variant=variant)
    same = sum(real == virtual for real, virtual in pairs)
    claim = f"{variant}: emulated and simulated end with the same bits"
    return decided(claim, f"{same} of {len(emulated)} seeds", bool(len(emulated)) and same == len(emulated))


def accuracies(found: Results, variants: Iterable[str]) -> Claims:
    """Decide whether final accuracies agree within two points."""
    for variant in variants:
        values = found.differences("accuracy", VIRTUAL, REAL, by="back_end", variant=variant)
        yield between(f"{variant}: final accuracy, simulated less emulated, within 2 points", values, -0.02, 0.02)


def ranking(found: Results, variants: Iterable[str], column: str, told: str) -> Claim:
    """Kendall's tau of the variants' means in the two worlds."""
    from scipy.stats import kendalltau  # which takes half a second to load

    means = found.runs.groupby(["back_end", "variant"])[column].mean()
    emulated, simulated = (means[back_end].loc[list(variants)] for back_end in (REAL, VIRTUAL))
    order = " < ".join(emulated.sort_values().index)
    claim = f"{told}: both worlds rank them alike (Kendall's tau at least 0.8; emulated: {order})"
    return exactly(claim, float(kendalltau(emulated, simulated).statistic), 0.8, 1.0)
