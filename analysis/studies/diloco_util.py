"""The share of the time in which accelerators compute, by the rate of the WAN: data-parallel training and DiLoCo."""

from __future__ import annotations

import math

import numpy as np

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, decided, exactly, unresolved
from analysis.studies.columns import computing_share, mbps, setting
from analysis.studies.results import Results
from analysis.studies.study import Case, Panel, Study

RATE = "links[*].rate"
STEP_S = 1.0  # ``device.step_time`` of the scenario
TARGET = 0.95  # utilisation: the claims compare the WAN rates that are needed to reach it
_DILOCO = "{kind: sgd, learning_rate: 0.05, at: worker}"
VARIANTS = {
    "data-parallel": {"training.rounds": "3"},
    "data-parallel, FP16": {"training.rounds": "3", "codec": "fp16"},
    "DiLoCo, H = 50": {"sync": "{kind: diloco, h: 50}", "optimizer": _DILOCO},
    "DiLoCo, H = 500": {"sync": "{kind: diloco, h: 500}", "optimizer": _DILOCO, "training.rounds": "1"},
}
STEPS = {"data-parallel": 1, "data-parallel, FP16": 1, "DiLoCo, H = 50": 50, "DiLoCo, H = 500": 500}
RATES = tuple(f"{step * 10**power} Mbit/s" for power in range(2, 6) for step in (1, 2, 5))


def claims(found: Results) -> Claims:
    for name in VARIANTS:
        rows = found.rows(variant=name)
        ideal = STEPS[name] * STEP_S / rows["round_time_s"]
        claim = f"{name}: measured utilisation is H Tc / (H Tc + Tsync) within 2 points at every rate"
        yield exactly(claim, float((ideal - rows["utilisation"]).abs().max()), 0, 0.02, " off at most")
    dense = _rate_for(found, "data-parallel")
    fastest = float(found.runs["rate_mbps"].max())
    for name, low in (("DiLoCo, H = 50", 20), ("DiLoCo, H = 500", 100)):
        claim = f"for 95 %: data-parallel needs at least {low} times the rate of {name}"
        rate = _rate_for(found, name)
        if dense is None and rate is not None and fastest / rate >= low:
            at_most = found.rows(variant="data-parallel")["utilisation"].max()
            measured = f"more than {fastest / rate:.0f} times: at {fastest:g} Mbit/s it is at {at_most:.0%}"
            yield decided(claim, measured, bool(at_most < TARGET))
        elif dense is None or rate is None:
            names = [each for each, needed in (("data-parallel", dense), (name, rate)) if needed is None]
            yield unresolved(claim, f"{' and '.join(names)}: the rate for 95 % lies outside those that were simulated")
        else:
            yield exactly(claim, dense / rate, low, unit=" times")


def _rate_for(found: Results, variant: str) -> float | None:
    """Return the rate in Mbit/s at which utilisation reaches ``TARGET``, interpolated between logarithms of rates.

    ``None`` if it is not reached at any rate that was simulated, or is reached already at the lowest one.
    """
    rows = found.rows(variant=variant).sort_values("rate_mbps")
    log_rates = np.log(rows["rate_mbps"].to_numpy())
    utilisation = rows["utilisation"].to_numpy()
    if not len(utilisation) or utilisation.max() < TARGET or utilisation[0] >= TARGET:
        return None
    above = int(np.argmax(utilisation >= TARGET))  # the first that reaches it; the one before does not
    around = slice(above - 1, above + 1)
    return math.exp(np.interp(TARGET, utilisation[around], log_rates[around]))


STUDY = Study(
    title="Compute utilisation against the rate of the WAN",
    source="Douillard et al. (DiLoCo 2023, Streaming DiLoCo 2025, Fig. 4); Jaghouar et al., INTELLECT-1",
    scenario="papers/diloco-util.yaml",
    variants=VARIANTS,
    cases={"utilisation": Case({}, {RATE: RATES}, seeds=1)},
    claims=claims,
    columns={"rate_mbps": setting(RATE, mbps), "utilisation": computing_share},
    looks={
        "data-parallel": look_of("fsa", "data-parallel"),
        "data-parallel, FP16": Identity("data-parallel, FP16", "#666666", ">"),
        "DiLoCo, H = 50": look_of("diloco", "DiLoCo, H = 50"),
        "DiLoCo, H = 500": Identity("DiLoCo, H = 500", "#D55E00", "D"),
    },
    panels=(
        Panel(
            "Utilisation (simulated, 335 M parameters, 1 s a step)",
            "utilisation",
            "rate_mbps",
            log="x",
            x_label="rate of every WAN link (Mbit/s)",
            y_label="share of time that accelerators compute",
            y_range=(0, 1.02),
            levels={TARGET: "95 %"},
        ),
    ),
    size_in=(6.4, 4.0),
)
