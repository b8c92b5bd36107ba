"""Sparse gradients: accuracy, bytes and time against the share that is kept; where dense wins again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import A_DIFFERENCE, Claim, Claims, between, decided, exactly, unresolved
from analysis.studies.columns import mbps, setting, wan_by_direction
from analysis.studies.study import Panel, Results, Study, StudySweep

PARTIES = 3
BOUND = 1000
RATE = "links[*].rate"
_KINDS = {"Bi-Sparse": "bisparse", "MSTopK": "mstopk", "top-k": "topk", "random-k": "randomk"}


def _sparse(kind: str, ratio: float, more: str = "") -> dict[str, str]:
    return {"codec": f"{{tier1: none, tier2: {{kind: {kind}, ratio: {ratio}, pull: sparse-sum{more}}}}}"}


def _variants(ratios: Sequence[float]) -> dict[str, dict[str, str]]:
    # what momentum correction corrects is momentum: so that is what its dense counterpart has (Lin et al., table 1)
    momentum = {"optimizer": "{kind: sgd, learning_rate: 0.05, momentum: 0.9, at: worker}"}
    found = {"dense": momentum, "FP16": {"codec": "fp16", **momentum}}
    for ratio in ratios:
        found |= {f"{name} {ratio}": _sparse(kind, ratio) for name, kind in _KINDS.items()}
        found[f"no momentum correction {ratio}"] = _sparse("bisparse", ratio, ", momentum: 0")
    dgc = "{tier1: none, tier2: {kind: dgc, ratio: 0.01, stage_rounds: 5, pull: dense}}"
    return {**found, "DGC 0.01": {"codec": dgc}}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    rates = ("5 Mbit/s", "20 Mbit/s", "100 Mbit/s", "1 Gbit/s")
    ratios = (0.1, 0.01) if quick else (0.1, 0.03, 0.01, 0.003, 0.001)
    padded = {f"padded {ratio}": _sparse("bisparse", ratio, ", padded: true") for ratio in (0.1, 0.01)}
    short = {"training.rounds": ("6",), "training.evaluate_every": ("6",)}
    timed = {"dense": {}, "FP16": {"codec": "fp16"}, "Bi-Sparse": _sparse("bisparse", 0.01)}
    return (
        StudySweep("accuracy", _variants(ratios), {}, 3 if quick else 5),
        StudySweep("bytes", {"dense": {}, **padded}, short),
        StudySweep("time", timed, {RATE: rates, **short}),
    )


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """``series`` and ``ratio`` from the variant; bytes of large keys per round, counted and by the closed form."""
    parts = runs["variant"].str.extract(r"^(?P<series>.*?)(?: (?P<ratio>[0-9.]+))?$")
    runs = runs.assign(series=parts["series"], ratio=parts["ratio"].astype(float))
    predicted, moved = pd.Series(math.nan, runs.index), pd.Series(math.nan, runs.index)
    for _, alike in runs[runs["sweep"] == "bytes"].groupby(["back_end", "seed"]):
        dense = alike.loc[alike["variant"] == "dense", "by_direction"].iloc[0]
        elements = {place: size // 4 for place, size in dense.items() if size >= 4 * BOUND}
        predicted[alike.index] = [_closed_form(elements, ratio) for ratio in alike["ratio"]]
        moved[alike.index] = [sum(places[place] for place in elements) for places in alike["by_direction"]]
    return runs.drop(columns="by_direction").assign(
        predicted_bytes=predicted, moved_bytes=moved, kept=runs["ratio"].fillna(1.0)
    )


def _closed_form(elements: dict[tuple[str, str, int], int], ratio: float) -> float:
    """Return the bytes of values and indices of the elements kept; pulls hold those of all parties, as in GeoMX."""
    if pd.isna(ratio):
        return float(4 * sum(elements.values()))
    return float(sum(4 * int(2 * ratio * count * (1 if place[1] == "push" else PARTIES) + 1e-9)
                     for place, count in elements.items()))  # fmt: skip


def claims(found: Results) -> Claims:
    def less(a: str, b: str) -> list[float]:
        return found.differences("accuracy", a, b, sweep="accuracy")

    yield between("Bi-Sparse at 1 %: accuracy within 1 point of dense", less("Bi-Sparse 0.01", "dense"), -0.01)
    yield between("FP16: accuracy within 0.5 points of dense", less("FP16", "dense"), -0.005, 0.005)
    yield between("random-k at 1 % is worse than Bi-Sparse", less("Bi-Sparse 0.01", "random-k 0.01"), A_DIFFERENCE)
    yield between("at 1 %, without momentum correction it is worse",
                  less("Bi-Sparse 0.01", "no momentum correction 0.01"), A_DIFFERENCE)  # fmt: skip
    for variant, rows in found.rows(sweep="bytes").groupby("variant", sort=False):
        claim = f"WAN bytes of large keys, {variant}: as the closed form says, to the byte"
        yield exactly(claim, float((rows["moved_bytes"] - rows["predicted_bytes"]).abs().max()), 0, 0, " B off")
    for ratio in (0.1, 0.01):
        wanted = 1 / (ratio * (1 + PARTIES))
        factors = found.ratios("moved_bytes", "dense", f"padded {ratio}", sweep="bytes")
        farthest = max(factors, key=lambda factor: abs(factor - wanted))
        claim = f"padded Bi-Sparse at {ratio:g} with P = {PARTIES}: reduction 1/(rho (1+P)) = {wanted:.4g} within 3 %"
        yield exactly(claim, farthest, wanted * 0.97, wanted * 1.03, " times")
    yield _crossover(found)


def _crossover(found: Results) -> Claim:
    """In virtual time selecting elements costs what the table of costs states; the crossover is reported only."""
    table = found.rows(sweep="time").pivot_table(index="rate_mbps", columns="variant", values="round_time_s")
    wins = table.index[table["dense"] <= table["Bi-Sparse"]]
    claim = "dense wins above a reported rate"
    measured = ", ".join(f"{rate:g} Mbit/s: {row['dense'] / row['Bi-Sparse']:.3g}" for rate, row in table.iterrows())
    if len(wins):
        return decided(claim, f"from {min(wins):g} Mbit/s (dense/Bi-Sparse {measured})", True)
    why = "dense never won at these rates"
    return unresolved(claim, why, f"dense/Bi-Sparse: {measured}")


STUDY = Study(
    title="Sparse gradients: accuracy, bytes, time",
    source="Lin et al., ICLR 2018 (DGC); GeoMX Bi-Sparse; Shi et al., MLSys 2021 (MSTopK)",
    scenario="papers/sparsity.yaml", sweeps=sweeps, claims=claims, derive=derive,
    columns={"rate_mbps": setting(RATE, mbps),
             "by_direction": lambda each: wan_by_direction(each) if each.sweep == "bytes" else None},
    looks={"dense": look_of("none"), "FP16": look_of("fp16"), "Bi-Sparse": look_of("bisparse"),
           "MSTopK": look_of("mstopk"), "top-k": look_of("topk"), "random-k": look_of("randomk"),
           "no momentum correction": Identity("Bi-Sparse without momentum correction", "#A6761D", "h", ":"),
           "DGC": look_of("dgc", "DGC push, dense pull")},
    panels=(
        Panel("Accuracy after 100 rounds", "100 * accuracy", "kept", where={"sweep": "accuracy"}, series="series",
              log="x", x_label="share of the elements kept", y_label="test accuracy (%)", y_range=(0, 102)),
        Panel("WAN traffic", "wan_bytes / 1e6 / rounds", "kept", where={"sweep": "accuracy"}, series="series", log="xy",
              x_label="share of the elements kept", y_label="MB per round, all parties"),
        Panel("Time of a round, 1 % kept", "round_time_s * 1000", "rate_mbps", where={"sweep": "time"}, series="series",
              log="xy", x_label="rate of the WAN links (Mbit/s)", y_label="ms"),
    ),
    size_in=(9.4, 4.0),
)  # fmt: skip
