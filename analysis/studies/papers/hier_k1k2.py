"""Hierarchical averaging: with K1 K2 fixed, averaging more often inside data centres costs no WAN byte."""

from __future__ import annotations

from itertools import pairwise

from analysis.identity import series
from analysis.studies.claims import A_DIFFERENCE, Claims, exactly, ordered, unresolved
from analysis.studies.columns import accuracy, setting
from analysis.studies.study import Panel, Results, Study, StudySweep
from analysis.studies.verdicts.comparison import factors

SPLIT = "training.split"
STEPS = 180  # of every worker, in every variant: six WAN rounds of K1 K2 = 30 steps
PAIRS = ((30, 1), (15, 2), (6, 5), (3, 10))
LABELS = {f"K1={k1}, K2={k2}": (k1, k2) for k1, k2 in PAIRS}


def _hfa(k1: int, k2: int, rounds: int) -> dict[str, str]:
    return {"sync": f"{{kind: hfa, k1: {k1}, k2: {k2}}}", "training.rounds": str(rounds)}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    variants = {label: _hfa(k1, k2, STEPS // k1) for label, (k1, k2) in LABELS.items()}
    return (
        StudySweep("time", variants, {SPLIT: ("iid", "by_class")}, 3 if quick else 5),
        StudySweep("bytes", {"K1 K2 = 6": _hfa(3, 2, 20), "K1 K2 = 30": _hfa(3, 10, 20)}),
    )


def claims(found: Results) -> Claims:
    iid = {"sweep": "time", "split": "iid"}
    times = {label: found.every("time_to_target_s", variant=label, **iid) for label in LABELS}
    yield ordered("IID: time to 90 % falls as K1 shrinks at fixed K1 K2", times)
    rows = found.rows(**iid)
    for a, b in pairwise(LABELS):
        claim = f"IID: {a} over {b} (time to 90 %) above 1"
        yield factors(rows, "time_to_target_s", a, b).decide(claim, 1 + A_DIFFERENCE)
    first, *_, last = LABELS
    yield factors(rows, "time_to_target_s", first, last).decide("IID: end to end 2 to 5 times", 2, 5)
    yield unresolved(
        "the gain is smaller when data centres, not only workers, hold different classes",
        "needs a split that is even over data centres and uneven over their workers; by_class is uneven over both",
    )
    six, thirty = (found.mean("bytes_per_round", variant=f"K1 K2 = {product}") for product in (6, 30))
    yield exactly("WAN bytes are proportional to 1/(K1 K2): 6 against 30, K1 = 3", six / thirty, 4.999, 5.001, " times")


STUDY = Study(
    title="Averaging inside and across data centres",
    source="Liu, Zhang, Song, Letaief, ICC 2020 (HierFAVG); GeoMX HFA",
    scenario="papers/hier-k1k2.yaml", sweeps=sweeps, curves=accuracy, claims=claims,
    columns={"split": setting(SPLIT, str, "iid")},
    derive=lambda runs: runs.assign(bytes_per_round=runs["wan_bytes"] / runs["rounds"]),
    looks={label: series(number, label) for number, label in enumerate(LABELS)},
    panels=(
        Panel("IID data", kind="curve", where={"sweep": "time", SPLIT: "iid"}),
        Panel("split by class", kind="curve", where={"sweep": "time", SPLIT: "by_class"}),
        Panel("Time to 90 %, IID", "time_to_target_s", kind="bar", where={"sweep": "time", "split": "iid"},
              x_label="(K1, K2)", y_label="s", labels={label: f"({k1},{k2})" for label, (k1, k2) in LABELS.items()}),
    ),
    size_in=(9.4, 3.4),
)  # fmt: skip
