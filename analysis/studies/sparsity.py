"""Sparse gradients: accuracy, bytes and round time by the share of elements kept, and where dense ones are better."""

from __future__ import annotations

import pandas as pd

from analysis.confidence import A_DIFFERENCE
from analysis.identity import Identity, look_of
from analysis.studies.columns import mbps, setting
from analysis.studies.study import Case, Expected, Panel, Settings, Study, StudyRun

PARTIES = 3
RATE = "links[*].rate"
RATIOS = (0.1, 0.03, 0.01, 0.003, 0.001)
_KINDS = {"Bi-Sparse": "bisparse", "MSTopK": "mstopk", "top-k": "topk", "random-k": "randomk"}
# the dense counterpart of momentum correction uses momentum (Lin et al., table 1)
_MOMENTUM = {"optimizer": "{kind: sgd, learning_rate: 0.05, momentum: 0.9, at: worker}"}
_SHORT = {"training.rounds": "6", "training.evaluate_every": "6"}


def _sparse(kind: str, ratio: float, more: str = "") -> Settings:
    return {"codec": f"{{tier1: none, tier2: {{kind: {kind}, ratio: {ratio}, pull: sparse-sum{more}}}}}"}


VARIANTS: dict[str, Settings] = {
    "dense": _MOMENTUM,
    "FP16": {"codec": "fp16", **_MOMENTUM},
    **{f"{name} {ratio}": _sparse(kind, ratio) for ratio in RATIOS for name, kind in _KINDS.items()},
    **{f"no momentum correction {ratio}": _sparse("bisparse", ratio, ", momentum: 0") for ratio in RATIOS},
    "DGC 0.01": {"codec": "{tier1: none, tier2: {kind: dgc, ratio: 0.01, stage_rounds: 5, pull: dense}}"},
}
PADDED = {ratio: f"padded {ratio}" for ratio in (0.1, 0.01)}


def _first_layer_bytes(each: StudyRun) -> int:
    """Return the payload bytes of key 0 over the WAN in training: the largest key, which is sent sparse."""
    transfers = each.run.tables["transfers"]
    wan = transfers[(transfers["tier"] == "wan") & (transfers["round"] >= 0) & (transfers["key"] == 0)]
    return int(wan.loc[wan["message"].isin(("push", "value")), "payload_bytes"].sum())


def _series(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the columns ``series`` and ``kept`` (the share of elements kept), read from the variant's label."""
    parts = runs["variant"].str.extract(r"^(?P<series>.*?)(?: (?P<ratio>[0-9.]+))?$")
    return runs.assign(series=parts["series"], kept=parts["ratio"].astype(float).fillna(1.0))


def _accuracy(claim: str, twin: str, technique: str, low: float, high: float = float("inf")) -> Expected:
    return Expected(claim, "accuracy", "accuracy", low, high, points=True, twin=twin, technique=technique)


def _reduction(ratio: float) -> Expected:
    """Return the claim about the bytes of a layer. A reply in GeoMX has the elements that any party has kept."""
    wanted = 1 / (ratio * (1 + PARTIES))
    claim = f"padded Bi-Sparse at {ratio:g} sends 1/(rho (1+P)) = {wanted:.4g} times less of a layer (3 % slack)"
    return Expected(
        claim, "bytes", "first_layer_bytes", 0.97 * wanted, 1.03 * wanted, technique=PADDED[ratio], exact=True
    )


STUDY = Study(
    title="Sparse gradients: accuracy, bytes, time",
    source="Lin et al., ICLR 2018 (DGC); GeoMX Bi-Sparse; Shi et al., MLSys 2021 (MSTopK)",
    scenario="papers/sparsity.yaml",
    cases={
        "accuracy": Case(variants=VARIANTS),
        "bytes": Case(
            _SHORT,
            seeds=1,
            variants={
                "dense": {},
                **{label: _sparse("bisparse", ratio, ", padded: true") for ratio, label in PADDED.items()},
            },
        ),
        "time": Case(
            _SHORT,
            {RATE: ("5 Mbit/s", "20 Mbit/s", "100 Mbit/s", "1 Gbit/s")},
            seeds=1,
            variants={"dense": {}, "FP16": {"codec": "fp16"}, "Bi-Sparse": _sparse("bisparse", 0.01)},
        ),
    },
    expected=(
        _accuracy("Bi-Sparse at 1 % within 1 point of dense", "dense", "Bi-Sparse 0.01", -1),
        _accuracy("FP16 within 0.5 points of dense", "dense", "FP16", -0.5, 0.5),
        _accuracy("Bi-Sparse is better than random-k at 1 %", "random-k 0.01", "Bi-Sparse 0.01", A_DIFFERENCE),
        _accuracy(
            "at 1 %, without momentum correction it is worse",
            "no momentum correction 0.01",
            "Bi-Sparse 0.01",
            A_DIFFERENCE,
        ),
        *map(_reduction, PADDED),
        Expected(
            "Bi-Sparse at 1 % has shorter rounds than dense",
            "time",
            "round_time_s",
            1 + A_DIFFERENCE,
            at={"rate_mbps": 5.0},
            exact=True,
        ),
    ),
    derive=_series,
    columns={"rate_mbps": setting(RATE, mbps), "first_layer_bytes": _first_layer_bytes},
    looks={
        "dense": look_of("none"),
        "FP16": look_of("fp16"),
        "Bi-Sparse": look_of("bisparse"),
        "MSTopK": look_of("mstopk"),
        "top-k": look_of("topk"),
        "random-k": look_of("randomk"),
        "no momentum correction": Identity("Bi-Sparse without momentum correction", "#A6761D", "h", ":"),
        "DGC": look_of("dgc", "DGC push, dense pull"),
    },
    panels=(
        Panel(
            "Accuracy after 100 rounds",
            "100 * accuracy",
            "kept",
            where={"sweep": "accuracy"},
            series="series",
            log="x",
            x_label="share of the elements kept",
            y_label="test accuracy (%)",
            y_range=(0, 102),
        ),
        Panel(
            "WAN traffic",
            "wan_bytes / 1e6 / rounds",
            "kept",
            where={"sweep": "accuracy"},
            series="series",
            log="xy",
            x_label="share of the elements kept",
            y_label="MB per round, all parties",
        ),
        Panel(
            "Time of a round, 1 % kept",
            "round_time_s * 1000",
            "rate_mbps",
            where={"sweep": "time"},
            series="series",
            log="xy",
            x_label="rate of the WAN links (Mbit/s)",
            y_label="ms",
        ),
    ),
    size_in=(9.4, 4.0),
)
