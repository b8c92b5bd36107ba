"""ESync: workers of different speed arrive together, as each does as many local steps as fit."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
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
    ordered,
    paired,
)  # fmt: skip
from analysis.figures.papers.quantities import compute_ratio, usual
from analysis.identity import look_of
from analysis.measures import wan_rate
from analysis.metrics import accuracy_curve

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


def studies(quick: bool) -> tuple[Study, ...]:
    return (Study("esync", "esync.yaml", VARIANTS, {SPLIT: ("iid", "by_class")}, 3 if quick else 5),)


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        row = {**usual(sample), "split": sample.settings[SPLIT]}
        ratios = compute_ratio(sample)
        row |= {"ratio_spread": max(ratios.values()) - min(ratios.values())}
        row |= {f"ratio {node}": ratio for node, ratio in ratios.items()}
        row["traffic_mb_per_s"] = (wan_rate(sample.run) or 0.0) / 1e6
        curve = accuracy_curve(sample.run)
        rows += [
            {**row, "at_s": at, "at_accuracy": value}
            for at, value in zip(curve["time_s"], curve["accuracy"], strict=True)
        ]
    return pd.DataFrame(rows)


def _runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run instead of one per evaluation."""
    return frame.drop_duplicates(["variant", "split", "seed"])


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    top, bottom = figure.subplots(2, 3)
    for axes, split, title in ((top[0], "iid", "IID data"), (top[1], "by_class", "data split by class")):
        for name, look in LOOKS.items():
            for seed, rows in frame[(frame["variant"] == name) & (frame["split"] == split)].groupby("seed"):
                first = seed == frame["seed"].min()
                axes.plot(rows["at_s"], rows["at_accuracy"], color=look.color, alpha=1 if first else 0.35,
                          label=look.label if first else None, linewidth=1.4)  # fmt: skip
        drawing.accuracy(axes)
        axes.set_title(title)
        axes.set_xlabel("training time (s)")
        axes.set_xlim(left=0)
    iid = _runs(frame[frame["split"] == "iid"])
    for axes, name, title, unit in (
        (top[2], "throughput", "Throughput", "samples/s"),
        (bottom[0], "traffic_mb_per_s", "WAN traffic", "MB/s"),
        (bottom[1], "time_to_target_s", "Time to 90 %, IID", "s"),
    ):
        drawing.bars(axes, iid, name, LOOKS)
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.tick_params(axis="x", labelsize=7.5)
    _ratios(bottom[2], iid)
    text = ", ".join(f"{each.series} {each.y:g}" for each in known)
    told = f"Published throughput on other hardware (samples/s; {known[0].source}): {text}" if known else ""
    figure.text(0.01, -0.02, told, fontsize=7, color="#555B66", va="top")
    top[0].legend(loc="lower right")


def _ratios(axes: Axes, iid: pd.DataFrame) -> None:
    columns = [name for name in iid.columns if name.startswith("ratio ") and iid[name].notna().any()]
    for place, (name, look) in enumerate(LOOKS.items()):
        values = iid.loc[iid["variant"] == name, columns].mean()
        for number, value in enumerate(values):
            axes.bar(number + (place - 1.5) * 0.2, value, width=0.19, color=look.color)
    labels = [name.removeprefix("ratio ").replace("/worker", " ") for name in columns]
    axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=7.5)
    axes.set_title("Share of time that a worker computes")
    axes.set_ylabel("ratio")


def check(frame: pd.DataFrame) -> list[Assertion]:
    runs = _runs(frame)
    iid = runs[runs["split"] == "iid"]

    def of(name: str) -> dict[str, list[float]]:
        return {variant: column(iid, name, variant=variant) for variant in VARIANTS}

    speed, traffic = of("throughput"), of("traffic_mb_per_s")
    found = [
        ordered("throughput: ESync > ASGD >= DC-ASGD > SSGD (1 % slack)",
                {name: speed[name] for name in ("ESync", "ASGD", "DC-ASGD", "SSGD")}, slack=0.01),
        ordered("WAN traffic per second: ASGD >= DC-ASGD > SSGD > ESync (as published; 1 % slack)",
                {name: traffic[name] for name in ("ASGD", "DC-ASGD", "SSGD", "ESync")}, slack=0.01),
        between("ESync: spread of the compute ratio at most 0.1", column(iid, "ratio_spread", variant="ESync"), 0, 0.1),
        between("SSGD: spread of the compute ratio above 0.5 (fast workers idle)",
                column(iid, "ratio_spread", variant="SSGD"), 0.5, 1),
    ]  # fmt: skip
    ratios = [a / b for a, b in zip(speed["ESync"], speed["SSGD"], strict=True)]
    ideal = (4 * 10 + 2 * 1) / 6  # four workers ten times as fast as the two slow ones
    found.append(
        between(
            "throughput ESync/SSGD within 30 % of the mean of c_slow/c_r", ratios, ideal * 0.7, ideal * 1.3, " times"
        )
    )
    ahead = [a / b for a, b in paired(iid, "time_to_target_s", "SSGD", "ESync")]
    found.append(between("IID: time to 90 %, SSGD over ESync, at least 2", ahead, 2, float("inf"), " times"))
    found.append(_crossover(frame))
    return found


def _crossover(frame: pd.DataFrame) -> Assertion:
    """Published: by class, ASGD leads at first and ESync in the end."""
    claim = "split by class: ASGD leads early, ESync in the end"
    rows = frame[frame["split"] == "by_class"]
    end = min(float(rows[rows["variant"] == name].groupby("seed")["at_s"].max().min()) for name in ("ASGD", "ESync"))
    late = [a - b for a, b in zip(_at(rows, "ESync", end), _at(rows, "ASGD", end), strict=True)]
    early = [a - b for a, b in zip(_at(rows, "ASGD", end / 5), _at(rows, "ESync", end / 5), strict=True)]
    first, last = between("", early, 0, 1), between("", late, 0, 1)
    told = f"ASGD - ESync early: {first.measured}; ESync - ASGD late: {last.measured}"
    verdicts = {first.verdict, last.verdict}
    verdict = "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "not resolved"
    return Assertion(claim, told, verdict, "" if verdict == "pass" else "both differences must be above 0")


def _at(rows: pd.DataFrame, variant: str, time_s: float) -> list[float]:
    groups = rows[rows["variant"] == variant].groupby("seed")
    return [float(group.loc[group["at_s"] <= time_s, "at_accuracy"].max()) if (group["at_s"] <= time_s).any() else 0.0
            for _, group in groups]  # fmt: skip


FIGURE = PaperFigure(
    title="ESync: synchronous training on unequal workers",
    source="Li, Zhou, Zhou, Yu, Xu, Sun, IEEE TSC 15(4), 2022",
    needs=("sync=esync", "sync=tap", "optimizer=dcasgd"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 5.4),
)  # fmt: skip
