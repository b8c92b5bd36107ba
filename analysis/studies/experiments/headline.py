"""Time to the same accuracy: a flat parameter server against the best stack, from 10 to 500 Mbit/s.

GeoMX claims 20 times, without data. Two data centres of four workers and one that only serves, as in its demo; the demo
CNN on real digits; stacks with local steps are evaluated after every round, the others after every fifth.
``--on simulate emulate --only 'flat PS,HFA 10x2 + FP16'`` also runs
the flat server and the best stack in real processes (two cores emulate links of up to about 125 Mbit/s).
"""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity
from analysis.studies.claims import Claims, decided, unresolved
from analysis.studies.columns import mbps, setting
from analysis.studies.study import Panel, Results, Study, StudySweep, against

SCENARIO = """
version: 1
name: headline
seed: 1
topology:
  data_centers:
    - {name: central, central: true, workers: 0}
    - {name: east, workers: 4}
    - {name: west, workers: 4}
  links:
    - {between: [central, east], rate: 20 Mbit/s, delay: 25 ms}
    - {between: [central, west], rate: 20 Mbit/s, delay: 40 ms}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: cnn, data: digits, batch: 32, rounds: 400, target_accuracy: 95 %, evaluate_every: 5}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.002}
"""
RATE = "links[*].rate"
FLAT = "flat PS"
_AT_WORKERS = {"optimizer": "{kind: adam, learning_rate: 0.002, at: worker}"}
_LOCAL_STEPS = {**_AT_WORKERS, "training.evaluate_every": "1"}
STACKS: dict[str, dict[str, str]] = {
    FLAT: {"paradigm": "ps"},
    "HiPS": {},
    "Bi-Sparse": {**_AT_WORKERS, "codec": "{tier1: none, tier2: {kind: bisparse, ratio: 0.05, pull: sparse-sum}}"},
    "MPQ": {**_AT_WORKERS, "codec": "{kind: mpq, ratio: 0.02, pull: sparse-sum}"},
    "HFA 5x2 + FP16": {**_LOCAL_STEPS, "sync": "{kind: hfa, k1: 5, k2: 2}", "codec": "fp16"},
    "HFA 10x2 + FP16": {**_LOCAL_STEPS, "sync": "{kind: hfa, k1: 10, k2: 2}", "codec": "fp16"},
    "DiLoCo 5 + FP16": {**_LOCAL_STEPS, "sync": "{kind: diloco, h: 5}", "codec": "fp16"},
    "DiLoCo 5 + MPQ": {**_LOCAL_STEPS, "sync": "{kind: diloco, h: 5}",
                       "codec": "{kind: mpq, ratio: 0.1, pull_ratio: 0.2}"},
}  # fmt: skip
_COLOURS = ("#000000", "#999999", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00", "#56B4E9")


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    rates = ("20",) if quick else ("10", "20", "50", "100", "500")
    return (StudySweep("stacks", STACKS, {RATE: tuple(f"{rate} Mbit/s" for rate in rates)}),)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """How many times sooner than the flat server a stack reaches the target."""
    base = against(runs, "time_to_target_s", ["rate_mbps", "back_end"], variant=FLAT)
    return runs.assign(gain=base / runs["time_to_target_s"])


def claims(found: Results) -> Claims:
    for rate, rows in found.rows(back_end="simulate").groupby("rate_mbps"):
        claim = f"{rate:g} Mbit/s: the best stack is 20 times sooner at the target than a flat parameter server"
        known = rows.dropna(subset="gain").sort_values("gain")
        if known.empty:
            yield unresolved(claim, "no stack, or not the flat server, has reached the target")
            continue
        best = known.iloc[-1]
        yield decided(claim, f"{best['gain']:.3g} times, {best['variant']}", best["gain"] >= 20, "less than claimed")


STUDY = Study(
    title="Time to the same accuracy against a flat parameter server",
    source="GeoMX README: '20x', published without rate and data",
    scenario=SCENARIO, sweeps=sweeps, target=0.95, columns={"rate_mbps": setting(RATE, mbps)}, derive=derive,
    claims=claims,
    looks={stack: Identity(stack, colour, "s") for stack, colour in zip(STACKS, _COLOURS, strict=True)},
    panels=(
        Panel("Time to 95 %", "time_to_target_s", "rate_mbps", log="xy", y_label="time to target (s)",
              x_label="rate of every WAN link (Mbit/s)"),
        Panel("How many times sooner than a flat PS", "gain", "rate_mbps", log="x", y_range=(0, None),
              x_label="rate of every WAN link (Mbit/s)", y_label="time of flat PS / time of the stack",
              levels={20.0: "GeoMX' claim"}),
    ),
    size_in=(9.4, 4.0),
)  # fmt: skip
