"""Hierarchical averaging: if K1 K2 is fixed, averaging more often inside data centres adds no bytes over the WAN."""

from __future__ import annotations

from itertools import pairwise

from analysis.confidence import A_DIFFERENCE
from analysis.identity import series
from analysis.studies.study import Case, Expected, Panel, Study

STEPS = 180  # steps of every worker in every variant: six WAN rounds of K1 K2 = 30 steps
PAIRS = ((30, 1), (15, 2), (6, 5), (3, 10))
LABELS = [f"K1={k1}, K2={k2}" for k1, k2 in PAIRS]
IID = "IID data"
BY_CLASS = "split by class"
BYTES = "bytes"


def _hfa(k1: int, k2: int, rounds: int) -> dict[str, str]:
    return {"sync": f"{{kind: hfa, k1: {k1}, k2: {k2}}}", "training.rounds": str(rounds)}


STUDY = Study(
    title="Averaging inside and across data centres",
    source="Liu, Zhang, Song, Letaief, ICC 2020 (HierFAVG); GeoMX HFA",
    scenario="papers/hier-k1k2.yaml",
    variants={label: _hfa(k1, k2, STEPS // k1) for label, (k1, k2) in zip(LABELS, PAIRS, strict=True)},
    cases={
        IID: Case({"training.split": "iid"}),
        BY_CLASS: Case({"training.split": "by_class"}),
        BYTES: Case(variants={"K1 K2 = 6": _hfa(3, 2, 20), "K1 K2 = 30": _hfa(3, 10, 20)}, seeds=1),
    },
    expected=(
        *(
            Expected(
                f"{short} is at 90 % sooner than {long}",
                IID,
                "time_to_target_s",
                1 + A_DIFFERENCE,
                twin=long,
                technique=short,
            )
            for long, short in pairwise(LABELS)
        ),
        Expected("end to end 2 to 5 times sooner at 90 %", IID, "time_to_target_s", 2, 5),
        Expected("WAN bytes are proportional to 1/(K1 K2)", BYTES, "bytes_per_round", 4.999, 5.001, exact=True),
    ),
    target=0.9,
    derive=lambda runs: runs.assign(bytes_per_round=runs["wan_bytes"] / runs["rounds"]),
    looks={label: series(number, label) for number, label in enumerate(LABELS)},
    panels=(
        Panel(IID, kind="curve", where={"sweep": IID}),
        Panel(BY_CLASS, kind="curve", where={"sweep": BY_CLASS}),
        Panel(
            "Time to 90 %, IID",
            "time_to_target_s",
            kind="bar",
            where={"sweep": IID},
            x_label="(K1, K2)",
            y_label="s",
            labels={label: f"({k1},{k2})" for label, (k1, k2) in zip(LABELS, PAIRS, strict=True)},
        ),
    ),
    size_in=(9.4, 3.4),
)
