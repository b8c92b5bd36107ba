"""Time to the same accuracy against a flat parameter server, over the ratio of communication to computation.

GeoMX claims 20 times, without data. Two data centres of four workers and one that only serves, as in its demo, and a
model of its demo's size on real digits. Like for like: every stack has the learning rate with which it is soonest, of
the same four (sweep ``search``, at 20 Mbit/s; what synchronous mathematics come to does not depend on the network), and
is evaluated after every round. The ratio is that of the flat server's own rounds: what is not its step over its step.
``--on emulate --only 'flat PS,HFA + FP16'`` runs two of them in real processes.
"""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import Identity
from analysis.metrics import time_to_accuracy
from analysis.studies.claims import Claims, between, decided, unresolved
from analysis.studies.columns import mbps, setting
from analysis.studies.study import Panel, Results, Study, StudySweep, select
from analysis.studies.verdicts.comparison import RATE as LEARNING_RATE
from analysis.studies.verdicts.comparison import SEEDS, factors, round_s, well_chosen
from testbed.units import parse_duration

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
    - {between: [central, east], rate: 20 Mbit/s, delay: 25 ms, queue: 1 MB}
    - {between: [central, west], rate: 20 Mbit/s, delay: 40 ms, queue: 1 MB}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training:
  {model: {kind: mlp, hidden: 1000}, data: digits, batch: 32, rounds: 300, target_accuracy: 95 %, evaluate_every: 1}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.003}
timeouts: {dead_after: 10 min}
"""
LINK_RATE, STEP, HIDDEN = "links[*].rate", "device.step_time", "training.model.hidden"
TARGET = 0.95
FLAT, BEST = "flat PS", "HFA + FP16"
PARTS = ("HiPS", "HiPS + FP16", "HFA")
GEOMX_RATIO = 78  # of its demo: 0.715 MB, two parties of two workers, 20 Mbit/s, 50 ms, 30 ms a step
_AT_WORKERS = "{kind: adam, learning_rate: 0.003, at: worker}"
STACKS: dict[str, dict[str, str]] = {
    FLAT: {"paradigm": "ps"},
    "HiPS": {},
    "HiPS + FP16": {"codec": "fp16"},
    "HFA": {"sync": "{kind: hfa, k1: 5, k2: 2}", "optimizer": _AT_WORKERS},
    BEST: {"sync": "{kind: hfa, k1: 5, k2: 2}", "optimizer": _AT_WORKERS, "codec": "fp16"},
}
LEARNING_RATES = ("0.003", "0.01", "0.03", "0.1")
CHOSEN = {FLAT: "0.03", "HiPS": "0.03", "HiPS + FP16": "0.01", "HFA": "0.01",
          BEST: "0.01"}  # fmt: skip
_COLOURS = ("#000000", "#999999", "#E69F00", "#009E73", "#0072B2")
RATES = ("5", "20", "100")
SLOWEST = "2 Mbit/s"
MAP = ("map", SLOWEST)
OTHER_SIZES = {SLOWEST: {LINK_RATE: SLOWEST}, "a quarter of the step": {STEP: "12.5 ms"},
               "four times the model": {HIDDEN: "4000"}}  # fmt: skip


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    """The search of learning rates; the map at those found; two of its stacks at one more rate and other sizes."""
    seeds, rates = 2 if quick else SEEDS, ("5", "50") if quick else RATES
    chosen = {stack: {**settings, LEARNING_RATE: CHOSEN[stack]} for stack, settings in STACKS.items()}
    ends = {stack: chosen[stack] for stack in (FLAT, BEST)}
    return (
        StudySweep("search", STACKS, {LINK_RATE: ("20 Mbit/s",), LEARNING_RATE: LEARNING_RATES}, 1,
                   on=("simulate",)),
        StudySweep("map", chosen, {LINK_RATE: tuple(f"{rate} Mbit/s" for rate in rates)}, seeds),
        *(StudySweep(name, {stack: {**each, **changed} for stack, each in ends.items()},
                     {LINK_RATE: (changed.get(LINK_RATE, "20 Mbit/s"),)}, seeds)
          for name, changed in OTHER_SIZES.items()),
    )  # fmt: skip


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the ratio of the flat server's rounds at the same place, and how many times sooner a stack is, by seed."""
    step_s = {"map": 0.05, "search": 0.05} | {
        name: parse_duration(changed.get(STEP, "50 ms")) for name, changed in OTHER_SIZES.items()
    }
    runs = runs.assign(step_s=runs["sweep"].map(step_s))
    place = ["sweep", "rate_mbps", "back_end", "seed"]
    flat = runs[(runs["variant"] == FLAT) & (runs["sweep"] != "search")].set_index(place)
    at = pd.MultiIndex.from_frame(runs[place])
    ratio = (flat["round_s"] - flat["step_s"]) / flat["step_s"]
    reached = flat["to_target_s"].fillna(flat["training_s"])
    return runs.assign(
        ratio=ratio.groupby(level=place[:-1]).mean().reindex(pd.MultiIndex.from_frame(runs[place[:-1]])).to_numpy(),
        gain=reached.reindex(at).to_numpy() / runs["to_target_s"],
    )  # fmt: skip


def claims(found: Results) -> Claims:
    yield from well_chosen(found.rows(sweep="search"), CHOSEN)
    for back_end in found.runs["back_end"].unique():
        known = found.rows(sweep=MAP, variant=BEST, back_end=back_end).dropna(subset=["gain", "ratio"])
        if known.empty:
            yield unresolved(f"times sooner than a flat server ({back_end})", "no stack, or not the flat server, ran")
            continue
        for wanted, ratio, whose in ((20, GEOMX_RATIO, "GeoMX's demo"), (50, 2 * GEOMX_RATIO, "twice that")):
            claim = f"{BEST} is {wanted} times sooner where communication is {ratio} times computation ({whose})"
            nearest = known[(known["ratio"] / ratio).map(math.log).abs().rank(method="dense") == 1]
            yield between(f"{claim} ({back_end})", nearest["gain"].tolist(), wanted, unit=" times")
        for rate, rows in found.rows(sweep="map", back_end=back_end).groupby("rate_mbps"):
            if float(rows["ratio"].mean()) >= 5:  # where there is communication to save
                for part in PARTS:
                    values, lost = factors(rows, "to_target_s", part, BEST)
                    claim = f"{rate:g} Mbit/s: {BEST} is ahead of {part} ({back_end})"
                    yield decided(claim, "–", False, lost) if lost else between(claim, values, 1.0, unit=" times")


def _ladder(axes: Axes, found: Results) -> None:
    """What each part brings where the ratio is GeoMX's."""
    rows = select(found.runs, {"sweep": "map", "rate_mbps": LADDER_MBPS})
    for place, stack in enumerate(STACKS):
        gains = rows.loc[rows["variant"] == stack, "gain"].dropna()
        if len(gains):
            axes.barh(place, gains.mean(), color=LOOKS[stack].color, height=0.65)
            axes.annotate(f"{gains.mean():.1f}", (gains.mean(), place), (3, 0), textcoords="offset points", va="center",
                          fontsize=7.5)  # fmt: skip
    axes.set_yticks(range(len(STACKS)), list(STACKS))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)


LADDER_MBPS = 5.0
LOOKS = {stack: Identity(stack, colour, "s") for stack, colour in zip(STACKS, _COLOURS, strict=True)}
STUDY = Study(
    title="Time to the same accuracy against a flat parameter server",
    source="GeoMX README: '20x', published without rate and data",
    scenario=SCENARIO, sweeps=sweeps, target=TARGET, derive=derive, claims=claims,
    columns={"rate_mbps": setting(LINK_RATE, mbps), "learning_rate": setting(LEARNING_RATE), "round_s": round_s,
             "to_target_s": lambda each: time_to_accuracy(each.run, TARGET)},
    looks=LOOKS,
    panels=(
        Panel("How many times sooner than a flat server", "gain", "ratio", log="xy", where={"sweep": MAP},
              x_label="communication / computation of the flat server's round",
              y_label="time of flat PS / time of the stack", levels={20.0: "GeoMX's claim"}, width=1.2),
        Panel("Other sizes", "gain", "ratio", log="xy", where={"variant": BEST, "sweep": ("map", *OTHER_SIZES)},
              series="sweep", x_label="communication / computation", legend=True),
        Panel(f"What each part brings, {LADDER_MBPS:g} Mbit/s", draw=_ladder,
              x_label="times sooner than a flat server"),
    ),
    size_in=(11.5, 4.0),
)  # fmt: skip
