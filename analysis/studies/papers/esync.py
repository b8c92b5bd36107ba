"""ESync: workers of different speed arrive together, as each does as many local steps as fit."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import look_of
from analysis.metrics import wan_rate
from analysis.studies import worlds
from analysis.studies.claims import A_DIFFERENCE, FAIL, PASS, UNRESOLVED, Claim, Claims, between, ordered
from analysis.studies.columns import accuracy, compute_ratio, ratio_spread, setting
from analysis.studies.study import Panel, Results, Study, StudySweep, select
from analysis.studies.verdicts.comparison import factors

_LONGER = {"training.rounds": "150", "training.evaluate_every": "5"}  # rounds of each worker's own are shorter
VARIANTS = {
    "ESync": {"sync": "esync", "optimizer": "{kind: sgd, learning_rate: 0.1, at: worker}"},
    "SSGD": {"sync": "fsa", "optimizer": "{kind: sgd, learning_rate: 0.05}"},
    "ASGD": {"sync": "tap", "optimizer": "{kind: sgd, learning_rate: 0.05}", **_LONGER},
    "DC-ASGD": {"sync": "tap", "optimizer": "{kind: dcasgd, learning_rate: 0.05, compensation: 0.04}", **_LONGER},
}  # fmt: skip
LOOKS = {"ESync": look_of("esync"), "SSGD": look_of("fsa", "SSGD"), "ASGD": look_of("tap", "ASGD"),
         "DC-ASGD": look_of("dcasgd")}  # fmt: skip
SPLIT = "training.split"
IDEAL = (4 * 10 + 2 * 1) / 6  # mean of c_slow / c_r: four workers are ten times as fast as the two slow ones


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    return (StudySweep("esync", VARIANTS, {SPLIT: ("iid", "by_class")}, 3 if quick else 5),)


def claims(found: Results) -> Claims:
    def of(name: str, *variants: str) -> dict[str, list[float]]:
        return {variant: found.of(name, variant=variant, split="iid") for variant in variants}

    speed = of("throughput", "ESync", "ASGD", "DC-ASGD", "SSGD")
    traffic = of("traffic_mb_per_s", "ASGD", "DC-ASGD", "SSGD", "ESync")
    yield ordered("throughput: ESync > ASGD >= DC-ASGD > SSGD (1 % slack)", speed, slack=0.01)
    yield ordered("WAN traffic per second: ASGD >= DC-ASGD > SSGD > ESync (as published; 1 % slack)", traffic, 0.01)
    spread = of("ratio_spread", "ESync", "SSGD")
    yield between("ESync: spread of the compute ratio at most 0.1", spread["ESync"], 0, 0.1)
    yield between("SSGD: spread of the compute ratio above 0.5 (fast workers idle)", spread["SSGD"], 0.5, 1)
    yield between(
        "throughput ESync/SSGD within 30 % of the mean of c_slow/c_r",
        found.ratios("throughput", "ESync", "SSGD", split="iid"),
        IDEAL * 0.7,
        IDEAL * 1.3,
        " times",
    )
    sooner = factors(found.rows(split="iid"), "time_to_target_s", "SSGD", "ESync")
    yield sooner.decide("IID: time to 90 %, SSGD over ESync, at least 2", 2)
    yield _crossover(found)


def _crossover(found: Results) -> Claim:
    """Published: by class, ASGD leads at first and ESync in the end."""
    rows = select(found.curves, {SPLIT: "by_class"})
    end_s = min(rows[rows["variant"] == name].groupby("seed")["at_s"].max().min() for name in ("ASGD", "ESync"))
    late = [a - b for a, b in zip(_at(rows, "ESync", end_s), _at(rows, "ASGD", end_s), strict=True)]
    early = [a - b for a, b in zip(_at(rows, "ASGD", end_s / 5), _at(rows, "ESync", end_s / 5), strict=True)]
    first, last = (between("", values, A_DIFFERENCE) for values in (early, late))
    measured = f"ASGD - ESync early: {first.measured}; ESync - ASGD late: {last.measured}"
    verdicts = {first.verdict, last.verdict}
    verdict = FAIL if FAIL in verdicts else PASS if verdicts == {PASS} else UNRESOLVED
    claim = "split by class: ASGD leads early, ESync in the end"
    return Claim(claim, measured, verdict, "" if verdict == PASS else "both differences must be above 0")


def _at(rows: pd.DataFrame, variant: str, time_s: float) -> list[float]:
    """Best accuracy until then, by seed."""
    groups = rows[rows["variant"] == variant].groupby("seed")
    return [float(max(group.loc[group["at_s"] <= time_s, "at_accuracy"], default=0.0)) for _, group in groups]


def _ratios(axes: Axes, found: Results) -> None:
    """For each worker, a bar per algorithm; means over seeds."""
    found = worlds.shown(found)
    columns = [name for name in found.runs if name.startswith("ratio of ")]
    for place, (name, look) in enumerate(LOOKS.items()):
        for number, column in enumerate(columns):
            values = found.of(f"`{column}`", variant=name, split="iid")
            axes.bar(number + (place - 1.5) * 0.2, sum(values) / len(values), width=0.19, color=look.color)
    labels = [name.removeprefix("ratio of ").replace("/worker", " ") for name in columns]
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=7.5)


STUDY = Study(
    title="ESync: synchronous training on unequal workers",
    source="Li, Zhou, Zhou, Yu, Xu, Sun, IEEE TSC 15(4), 2022",
    scenario="papers/esync.yaml", sweeps=sweeps, curves=accuracy, claims=claims,
    columns={"split": setting(SPLIT, str), "ratio_spread": ratio_spread,
             "ratio of": compute_ratio,
             "traffic_mb_per_s": lambda each: (wan_rate(each.run) or 0.0) / 1e6},
    looks=LOOKS,
    panels=(
        Panel("IID data", kind="curve", where={SPLIT: "iid"}),
        Panel("data split by class", kind="curve", where={SPLIT: "by_class"}),
        Panel("Throughput", "throughput", kind="bar", where={SPLIT: "iid"}, y_label="samples/s"),
        Panel("WAN traffic", "traffic_mb_per_s", kind="bar", where={SPLIT: "iid"}, y_label="MB/s"),
        Panel("Time to 90 %, IID", "time_to_target_s", kind="bar", where={SPLIT: "iid"}, y_label="s"),
        Panel("Share of time that a worker computes", draw=_ratios, y_label="ratio"),
    ),
    rows=2, size_in=(9.4, 5.4),
)  # fmt: skip
