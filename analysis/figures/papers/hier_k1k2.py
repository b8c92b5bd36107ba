"""Hierarchical averaging: with K1 K2 fixed, averaging more often inside data centres costs no WAN byte."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import (
    Assertion,
    PaperFigure,
    Published,
    Sample,
    Study,
    between,
    column,
    exactly,
    ordered,
    paired,
    unresolved,
)  # fmt: skip
from analysis.figures.papers.quantities import usual
from analysis.identity import series
from analysis.metrics import accuracy_curve

SPLIT = "training.split"
STEPS = 180  # of every worker, in every variant: six WAN rounds of K1 K2 = 30 steps
PAIRS = ((30, 1), (15, 2), (6, 5), (3, 10))
LABELS = {f"K1={k1}, K2={k2}": (k1, k2) for k1, k2 in PAIRS}
LOOKS = {label: series(number) for number, label in enumerate(LABELS)}


def studies(quick: bool) -> tuple[Study, ...]:
    variants = {label: {"sync": f"{{kind: hfa, k1: {k1}, k2: {k2}}}", "training.rounds": str(STEPS // k1)}
                for label, (k1, k2) in LABELS.items()}  # fmt: skip
    dense = {"K1 K2 = 6": {"sync": "{kind: hfa, k1: 3, k2: 2}", "training.rounds": "20"},
             "K1 K2 = 30": {"sync": "{kind: hfa, k1: 3, k2: 10}", "training.rounds": "20"}}  # fmt: skip
    return (
        Study("time", "hier-k1k2.yaml", variants, {SPLIT: ("iid", "by_class")}, 3 if quick else 5),
        Study("bytes", "hier-k1k2.yaml", dense),
    )


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        row = {**usual(sample), "split": sample.settings.get(SPLIT, "iid")}
        row["bytes_per_round"] = row["wan_bytes"] / row["rounds"]
        curve = accuracy_curve(sample.run)
        rows += [{**row, "at_s": at, "at_bytes": moved, "at_accuracy": value} for at, moved, value in
                 zip(curve["time_s"], curve["wan_bytes"], curve["accuracy"], strict=True)]  # fmt: skip
    return pd.DataFrame(rows)


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 0.85))
    times = frame[frame["study"] == "time"]
    for axes, split, title in ((panels[0], "iid", "IID data"), (panels[1], "by_class", "split by class")):
        for label, look in LOOKS.items():
            for seed, rows in times[(times["variant"] == label) & (times["split"] == split)].groupby("seed"):
                first = seed == times["seed"].min()
                axes.plot(rows["at_s"], rows["at_accuracy"], color=look.color, alpha=1 if first else 0.3, linewidth=1.4,
                          label=label if first else None)  # fmt: skip
        drawing.accuracy(axes)
        axes.set_title(title)
        axes.set_xlabel("training time (s)")
        axes.set_xlim(left=0)
    runs = times.drop_duplicates(["variant", "split", "seed"])
    iid = runs[runs["split"] == "iid"]
    bars = {
        label: type(look)(f"({k1},{k2})", look.color)
        for (label, look), (k1, k2) in zip(LOOKS.items(), PAIRS, strict=True)
    }
    drawing.bars(panels[2], iid, "time_to_target_s", bars)
    panels[2].set_title("Time to 90 %, IID")
    panels[2].set_ylabel("s")
    panels[2].set_xlabel("(K1, K2)")
    panels[0].legend(loc="lower right")
    for each in known:
        figure.text(
            0.01,
            -0.02,
            f"Published: {each.series}, up to {each.y:g} times faster",
            fontsize=7,
            color="#555B66",
            va="top",
        )


def check(frame: pd.DataFrame) -> list[Assertion]:
    runs = frame.drop_duplicates(["study", "variant", "split", "seed"])
    times = {label: column(runs, "time_to_target_s", study="time", variant=label, split="iid") for label in LABELS}
    labels = list(LABELS)
    iid = runs[(runs["study"] == "time") & (runs["split"] == "iid")]
    found = [ordered("IID: time to 90 % falls as K1 shrinks at fixed K1 K2", times)]
    for a, b in pairwise(labels):
        claim = f"IID: {a} over {b} (time to 90 %) above 1"
        found.append(between(claim, _ratios(iid, a, b), 1, float("inf"), " times"))
    ends = _ratios(iid, labels[0], labels[-1])
    found.append(between("IID: end to end 2 to 5 times", ends, 2, 5, " times"))
    why = "needs a split that is even over data centres and uneven over their workers; by_class is uneven over both"
    found.append(unresolved("the gain is smaller when data centres, not only workers, hold different classes", why))
    dense = runs[runs["study"] == "bytes"].groupby("variant")["bytes_per_round"].mean()
    ratio = float(dense["K1 K2 = 6"] / dense["K1 K2 = 30"])
    found.append(
        exactly("WAN bytes are proportional to 1/(K1 K2): 6 against 30, K1 = 3", ratio, 4.999, 5.001, " times")
    )
    return found


def _ratios(runs: pd.DataFrame, above: str, below: str) -> list[float]:
    return [a / b for a, b in paired(runs, "time_to_target_s", above, below)]


FIGURE = PaperFigure(
    title="Averaging inside and across data centres",
    source="Liu, Zhang, Song, Letaief, ICC 2020 (HierFAVG); GeoMX HFA",
    needs=("sync=hfa",),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 3.4),
)  # fmt: skip
