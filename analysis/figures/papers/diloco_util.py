"""How much of the time accelerators compute, against the rate of the WAN: data-parallel against DiLoCo."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import panels
from analysis.figures.papers import drawing
from analysis.figures.papers.base import (
    Assertion,
    PaperFigure,
    Published,
    Sample,
    Study,
    exactly,
    published,
    unresolved,
)  # fmt: skip
from analysis.figures.papers.quantities import computing_share, rate_mbps, usual
from analysis.identity import Identity, look_of

RATE = "links[*].rate"
STEP_S, INNER_MIN = 1.0, 38.0  # of the scenario; of INTELLECT-1's inner phase
HALF = 0.95
_DILOCO = "{kind: sgd, learning_rate: 0.05, at: worker}"
VARIANTS = {
    "data-parallel": {"training.rounds": "3"},
    "data-parallel, FP16": {"training.rounds": "3", "codec": "fp16"},
    "DiLoCo, H = 50": {"sync": "{kind: diloco, h: 50}", "optimizer": _DILOCO},
    "DiLoCo, H = 500": {"sync": "{kind: diloco, h: 500}", "optimizer": _DILOCO, "training.rounds": "1"},
}
STEPS = {"data-parallel": 1, "data-parallel, FP16": 1, "DiLoCo, H = 50": 50, "DiLoCo, H = 500": 500}
LOOKS = {"data-parallel": look_of("fsa", "data-parallel"),
         "data-parallel, FP16": Identity("data-parallel, FP16", "#666666", ">"),
         "DiLoCo, H = 50": look_of("diloco", "DiLoCo, H = 50"),
         "DiLoCo, H = 500": Identity("DiLoCo, H = 500", "#D55E00", "D")}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    rates = ("100 Mbit/s", "1 Gbit/s", "10 Gbit/s", "100 Gbit/s")
    many = tuple(f"{step * 10**power} Mbit/s" for power in range(2, 6) for step in (1, 2, 5))
    return (Study("utilisation", "diloco-util.yaml", VARIANTS, {RATE: rates if quick else many}),)


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    rows = []
    for sample in samples:
        row = {**usual(sample), "rate_mbps": rate_mbps(sample.settings[RATE]), "utilisation": computing_share(sample)}
        row["steps"] = STEPS[sample.variant]
        row["sync_s"] = row["round_time_s"] - row["steps"] * STEP_S
        rows.append(row)
    return pd.DataFrame(rows)


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    for name, look in LOOKS.items():
        drawing.line(left, frame[frame["variant"] == name], "rate_mbps", "utilisation", look)
    left.axhline(HALF, color=panels.MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    drawing.log_rate(left)
    left.set_ylim(0, 1.02)
    left.set_ylabel("share of time that accelerators compute")
    left.set_title("Utilisation (simulated, 335 M parameters, 1 s a step)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    seconds = np.linspace(0, 500, 100)
    right.plot(
        seconds, INNER_MIN * 60 / (INNER_MIN * 60 + seconds), color="#20242C", label="closed form, inner phase 38 min"
    )
    right.plot([each.x for each in known], [each.y for each in known], "o", color="white", markeredgecolor="#D55E00",
               markersize=6, label="published (INTELLECT-1), other hardware")  # fmt: skip
    for each in known:
        right.annotate(each.series, (each.x, each.y), (5, 5), textcoords="offset points", fontsize=7.5)
    right.set_ylim(0.78, 1.02)
    right.set_xlabel("time of one all-reduce (s)")
    right.set_ylabel("utilisation")
    right.set_title("Check of the closed form")
    right.legend(loc="lower left")


def check(frame: pd.DataFrame) -> list[Assertion]:
    found = []
    for name, group in frame.groupby("variant", sort=False):
        ideal = group["steps"] * STEP_S / (group["steps"] * STEP_S + group["sync_s"])
        worst = float((ideal - group["utilisation"]).abs().max())
        claim = f"{name}: measured utilisation is H Tc / (H Tc + Tsync) within 2 points at every rate"
        found.append(exactly(claim, worst, 0, 0.02, " off at most"))
    needed = {name: _rate_for(group) for name, group in frame.groupby("variant", sort=False)}
    dense = needed["data-parallel"]
    for name, low in (("DiLoCo, H = 50", 20), ("DiLoCo, H = 500", 100)):
        claim = f"for 95 %: data-parallel needs at least {low} times the rate of {name}"
        rates = (dense, needed[name])
        if None in rates:
            found.append(unresolved(claim, "95 % lies outside the rates looked at (Mbit/s): " + str(rates)))
        else:
            found.append(exactly(claim, dense / needed[name], low, float("inf"), " times"))  # type: ignore[operator]
    for each in published("diloco-util"):
        computed = INNER_MIN * 60 / (INNER_MIN * 60 + each.x)
        claim = f"INTELLECT-1, {each.series}: closed form from (38 min, {each.x:g} s) gives {each.y:.1%} within 1 point"
        found.append(exactly(claim, computed, each.y - 0.01, each.y + 0.01))
    found.append(
        unresolved(
            "streaming DiLoCo needs 20 to 100 times less than data-parallel",
            "streaming is no technique of scenarios; its schedule: python -m analysis.experiments.streaming_diloco",
        )
    )
    found.append(unresolved("simulation against emulation within 5 points", "needs the emulated runs of a small model"))
    return found


def _rate_for(group: pd.DataFrame) -> float | None:
    """The rate at which the utilisation crosses 95 %, by interpolation over the logarithm of the rate."""
    rows = group.sort_values("rate_mbps")
    x, y = np.log(rows["rate_mbps"].to_numpy()), rows["utilisation"].to_numpy()
    if y.max() < HALF or y.min() > HALF:
        return None
    above = int(np.argmax(y >= HALF))
    part = (HALF - y[above - 1]) / (y[above] - y[above - 1])
    return math.exp(x[above - 1] + part * (x[above] - x[above - 1]))


FIGURE = PaperFigure(
    title="Compute utilisation against the rate of the WAN",
    source="Douillard et al. (DiLoCo 2023, Streaming DiLoCo 2025, Fig. 4); Jaghouar et al., INTELLECT-1, Table 2",
    needs=("sync=diloco", "codec=fp16"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(9.4, 3.8),
)  # fmt: skip
