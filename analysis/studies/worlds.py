"""The virtual world against the real one: errors of a study that ran its points on several back ends."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from scipy.stats import kendalltau

from analysis.identity import Identity
from analysis.metrics import relative_error
from analysis.studies.claims import Claim, Claims, between, decided, exactly
from analysis.studies.study import Results

REAL, VIRTUAL = "emulate", "simulate"


def errors(found: Results, variant: str, column: str = "round_time_s") -> list[float]:
    """Simulated against emulated, seed by seed, as a share of the emulated value; none without both."""
    pairs = found.pairs(column, VIRTUAL, REAL, by="back_end", variant=variant)
    return [relative_error(simulated, emulated) for simulated, emulated in pairs]


def same_bits(found: Results, variant: str) -> Claim:
    """Whether every emulated run ended with the parameters of its simulation."""
    emulated = found.rows(variant=variant, back_end=REAL)["parameters_sha256"].dropna()
    pairs = found.pairs("parameters_sha256", REAL, VIRTUAL, by="back_end", variant=variant)
    same = sum(real == virtual for real, virtual in pairs)
    claim = f"{variant}: emulated and simulated end with the same bits"
    return decided(claim, f"{same} of {len(emulated)} seeds", bool(len(emulated)) and same == len(emulated))


def accuracies(found: Results, variants: Iterable[str]) -> Claims:
    """Whether final accuracies agree within two points."""
    for variant in variants:
        pairs = found.pairs("accuracy", VIRTUAL, REAL, by="back_end", variant=variant)
        claim = f"{variant}: final accuracy, simulated less emulated, within 2 points"
        yield between(claim, [simulated - emulated for simulated, emulated in pairs], -0.02, 0.02)


def ranking(found: Results, variants: Iterable[str], column: str, told: str) -> Claim:
    """Kendall's tau of the variants' means in the two worlds."""
    means = found.runs.groupby(["back_end", "variant"])[column].mean()
    emulated, simulated = (means[back_end].loc[list(variants)] for back_end in (REAL, VIRTUAL))
    order = " < ".join(emulated.sort_values().index)
    claim = f"{told}: both worlds rank them alike (Kendall's tau at least 0.8; emulated: {order})"
    return exactly(claim, float(kendalltau(emulated, simulated).statistic), 0.8, 1.0)


def draw_errors(axes: Axes, found: Results, looks: dict[str, Identity]) -> None:
    """Relative errors of the round in per cent: one point per seed, and their mean."""
    for place, (name, look) in enumerate(looks.items()):
        values = [100 * value for value in errors(found, name)]
        if values:
            axes.plot([place] * len(values), values, "o", color=look.color, markersize=3, alpha=0.6)
            axes.plot([place - 0.25, place + 0.25], [sum(values) / len(values)] * 2, color=look.color, linewidth=2)
    axes.axhline(0, color="#555B66", linewidth=0.9)
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()], rotation=30, ha="right")
    axes.grid(axis="x", visible=False)
