"""How much of the time accelerators compute, against the rate of the WAN: data-parallel against DiLoCo."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, decided, exactly, unresolved
from analysis.studies.columns import computing_share, mbps, setting
from analysis.studies.drawing import INK
from analysis.studies.study import Panel, Results, Study, StudySweep

RATE = "links[*].rate"
STEP_S, INNER_S = 1.0, 38.0 * 60  # of the scenario; of INTELLECT-1's inner phase
TARGET = 0.95
_DILOCO = "{kind: sgd, learning_rate: 0.05, at: worker}"
VARIANTS = {
    "data-parallel": {"training.rounds": "3"},
    "data-parallel, FP16": {"training.rounds": "3", "codec": "fp16"},
    "DiLoCo, H = 50": {"sync": "{kind: diloco, h: 50}", "optimizer": _DILOCO},
    "DiLoCo, H = 500": {"sync": "{kind: diloco, h: 500}", "optimizer": _DILOCO, "training.rounds": "1"},
}
STEPS = {"data-parallel": 1, "data-parallel, FP16": 1, "DiLoCo, H = 50": 50, "DiLoCo, H = 500": 500}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    rates = ("100 Mbit/s", "1 Gbit/s", "10 Gbit/s", "100 Gbit/s")
    many = tuple(f"{step * 10**power} Mbit/s" for power in range(2, 6) for step in (1, 2, 5))
    return (StudySweep("utilisation", VARIANTS, {RATE: rates if quick else many}),)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    steps = runs["variant"].map(STEPS)
    return runs.assign(steps=steps, sync_s=runs["round_time_s"] - steps * STEP_S)


def closed_form(all_reduce_s: Any) -> Any:
    """Utilisation of INTELLECT-1, T_inner / (T_inner + T_sync)."""
    return INNER_S / (INNER_S + all_reduce_s)


def claims(found: Results) -> Claims:
    for name in VARIANTS:
        rows = found.rows(variant=name)
        ideal = rows.eval(f"steps * {STEP_S} / (steps * {STEP_S} + sync_s)")
        claim = f"{name}: measured utilisation is H Tc / (H Tc + Tsync) within 2 points at every rate"
        yield exactly(claim, float((ideal - rows["utilisation"]).abs().max()), 0, 0.02, " off at most")
    dense, fastest = _rate_for(found, "data-parallel"), float(found.runs["rate_mbps"].max())
    for name, low in (("DiLoCo, H = 50", 20), ("DiLoCo, H = 500", 100)):
        claim = f"for 95 %: data-parallel needs at least {low} times the rate of {name}"
        rate = _rate_for(found, name)
        if dense is None and rate is not None and fastest / rate >= low:
            at_most = found.rows(variant="data-parallel")["utilisation"].max()
            measured = f"more than {fastest / rate:.0f} times: at {fastest:g} Mbit/s it is at {at_most:.0%}"
            yield decided(claim, measured, bool(at_most < TARGET))
        elif dense is None or rate is None:
            yield unresolved(claim, f"95 % lies outside the rates looked at (Mbit/s): {(dense, rate)}")
        else:
            yield exactly(claim, dense / rate, low, unit=" times")
    for each in found.published:
        claim = f"INTELLECT-1, {each.series}: closed form from (38 min, {each.x:g} s) gives {each.y:.1%} within 1 point"
        yield exactly(claim, closed_form(each.x), each.y - 0.01, each.y + 0.01)
    yield unresolved(
        "streaming DiLoCo needs 20 to 100 times less than data-parallel",
        "decided by a study of its own: testbed figure streaming-diloco",
    )
    yield unresolved("simulation against emulation within 5 points", "needs the emulated runs of a small model")


def _rate_for(found: Results, variant: str) -> float | None:
    """The rate in Mbit/s at which the utilisation crosses 95 %, by interpolation over the logarithm of the rate."""
    rows = found.rows(variant=variant).sort_values("rate_mbps")
    x, y = np.log(rows["rate_mbps"].to_numpy()), rows["utilisation"].to_numpy()
    if not len(y) or y.max() < TARGET or y.min() > TARGET:
        return None
    above = int(np.argmax(y >= TARGET))
    return math.exp(np.interp(TARGET, y[above - 1 : above + 1], x[above - 1 : above + 1]))


def _closed_form(axes: Axes, found: Results) -> None:
    seconds = np.linspace(0, 500, 100)
    axes.plot(seconds, closed_form(seconds), color=INK, label="closed form, inner phase 38 min")
    axes.plot([each.x for each in found.published], [each.y for each in found.published], "o", color="white",
              markeredgecolor="#D55E00", label="published (INTELLECT-1), other hardware")  # fmt: skip
    for each in found.published:
        axes.annotate(each.series, (each.x, each.y), (5, 5), textcoords="offset points", fontsize=7.5)


STUDY = Study(
    title="Compute utilisation against the rate of the WAN",
    source="Douillard et al. (DiLoCo 2023, Streaming DiLoCo 2025, Fig. 4); Jaghouar et al., INTELLECT-1, Table 2",
    scenario="papers/diloco-util.yaml", sweeps=sweeps, claims=claims, derive=derive,
    columns={"rate_mbps": setting(RATE, mbps), "utilisation": computing_share},
    looks={"data-parallel": look_of("fsa", "data-parallel"),
           "data-parallel, FP16": Identity("data-parallel, FP16", "#666666", ">"),
           "DiLoCo, H = 50": look_of("diloco", "DiLoCo, H = 50"),
           "DiLoCo, H = 500": Identity("DiLoCo, H = 500", "#D55E00", "D")},
    panels=(
        Panel("Utilisation (simulated, 335 M parameters, 1 s a step)", "utilisation", "rate_mbps", log="x",
              x_label="rate of every WAN link (Mbit/s)", y_label="share of time that accelerators compute",
              y_range=(0, 1.02), levels={TARGET: "95 %"}, width=1.4),
        Panel("Check of the closed form", draw=_closed_form, published="1", x_label="time of one all-reduce (s)",
              y_label="utilisation", y_range=(0.78, 1.02), legend=True),
    ),
    size_in=(9.4, 3.8),
)  # fmt: skip
