"""Time to the same accuracy against a flat parameter server, over the ratio of communication to computation.

GeoMX claims 20 times, without data. Two data centres of four workers and one that only serves, as in its demo, and
models of half and of almost twice its demo's size on real digits. Like for like: every stack has the learning rate with
which it is soonest, of the same five (one seed, simulated at 20 Mbit/s: what synchronous mathematics come to does not
depend on network and back end), and is evaluated whenever there is a new global model: in every round, with HFA in
every eighth, as between two averages over the WAN each data centre has a model of its own. The ratio is that of the
flat server's own rounds: what is not its step over its step.

``--on exact --seeds 1`` runs the map in real processes and the kernel's TCP, whatever else the machine does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import BACK_ENDS, Identity
from analysis.metrics import mean_of, time_to_accuracy
from analysis.studies import worlds
from analysis.studies.claims import A_DIFFERENCE, Claim, Claims, between, decided, unresolved
from analysis.studies.columns import mbps, setting
from analysis.studies.study import Panel, Results, Settings, Study, StudySweep
from analysis.studies.verdicts.comparison import RATE as LEARNING_RATE
from analysis.studies.verdicts.comparison import SEEDS, factors, round_s, well_chosen

STEP_S = 0.05
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
LINK_RATE, HIDDEN = "links[*].rate", "training.model.hidden"
TARGET = 0.95
FLAT, BEST = "flat PS", "HFA + FP16"
PARTS = ("HiPS", "HiPS + FP16", "HFA")
GEOMX_RATIO = 78  # of its demo: 0.715 MB, two parties of two workers, 20 Mbit/s, 50 ms, 30 ms a step
_HFA = {
    "sync": "{kind: hfa, k1: 5, k2: 8}",
    "optimizer": "{kind: adam, learning_rate: 0.003, at: worker}",
    "training.evaluate_every": "8",
}
STACKS: dict[str, Settings] = {
    FLAT: {"paradigm": "ps"},
    "HiPS": {},
    "HiPS + FP16": {"codec": "fp16"},
    "HFA": _HFA,
    BEST: {**_HFA, "codec": "fp16"},
}
LEARNING_RATES = ("0.001", "0.003", "0.01", "0.03", "0.1")
SMALL, LARGE = "0.3 MB", "1.2 MB"
"""Models, and the names of their maps."""
MODELS: dict[str, Settings] = {SMALL: {HIDDEN: "1000"}, LARGE: {HIDDEN: "4000"}}
CHOSEN: dict[str, dict[str, str]] = {
    SMALL: {FLAT: "0.03", "HiPS": "0.03", "HiPS + FP16": "0.01", "HFA": "0.01", BEST: "0.01"},
    LARGE: {FLAT: "0.003", BEST: "0.003"},
}
_NEAR = math.log(1.25)  # a claim at one ratio of communication to computation says little of another
SEARCH = ", learning rates"
RATES = ("5", "10", "20", "50", "100")
LOOKS = {
    stack: Identity(stack, colour, "s")
    for stack, colour in zip(STACKS, ("#000000", "#999999", "#E69F00", "#009E73", "#0072B2"), strict=True)
}


def sweeps(quick: bool) -> Iterator[StudySweep]:
    """Yield for each model the search of learning rates, and the map over rates at those found."""
    seeds, rates = 2 if quick else SEEDS, ("5", "50") if quick else RATES
    for model, size in MODELS.items():
        stacks = {stack: {**STACKS[stack], **size} for stack in CHOSEN[model]}
        tried = {LINK_RATE: ("20 Mbit/s",), LEARNING_RATE: LEARNING_RATES}
        yield StudySweep(model + SEARCH, stacks, tried, 1, on=("simulate",))
        chosen = {stack: {**each, LEARNING_RATE: CHOSEN[model][stack]} for stack, each in stacks.items()}
        yield StudySweep(model, chosen, {LINK_RATE: tuple(f"{rate} Mbit/s" for rate in rates)}, seeds)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the ratio of the flat server's rounds at the same place, and how many times sooner a stack is, by seed."""
    place = ["sweep", "rate_mbps", "back_end", "seed"]
    flat = runs[(runs["variant"] == FLAT) & runs["sweep"].isin(MODELS)].set_index(place)
    ratio = (flat["round_s"] - STEP_S) / STEP_S
    reached = flat["to_target_s"].fillna(flat["training_s"])
    return runs.assign(
        ratio=ratio.groupby(level=place[:-1]).mean().reindex(pd.MultiIndex.from_frame(runs[place[:-1]])).to_numpy(),
        gain=reached.reindex(pd.MultiIndex.from_frame(runs[place])).to_numpy() / runs["to_target_s"],
        flat_s=flat["to_target_s"].reindex(pd.MultiIndex.from_frame(runs[place])).to_numpy(),
    )  # fmt: skip


def claims(found: Results) -> Claims:
    for model, chosen in CHOSEN.items():
        for claim in well_chosen(found.rows(sweep=model + SEARCH), chosen):
            yield Claim(f"{model}, {claim.claim}", claim.measured, claim.verdict, claim.why)
    for back_end in found.runs["back_end"].unique():
        told = f" ({BACK_ENDS[back_end].label})"
        known = found.rows(sweep=tuple(MODELS), back_end=back_end)
        yield from _times_sooner(known[known["variant"] == BEST].dropna(subset=["ratio"]), told)
        for (model, rate), rows in known.groupby(["sweep", "rate_mbps"], sort=False):
            for part in (each for each in PARTS if each in CHOSEN[str(model)]):
                text = f"{model}, {rate:g} Mbit/s: {BEST} is ahead of {part}{told}"
                yield factors(rows, "to_target_s", part, BEST).decide(text, 1 + A_DIFFERENCE)


def _times_sooner(best: pd.DataFrame, told: str) -> Claims:
    """Decide at the measured ratio that is nearest to the one claimed, whichever the model."""
    if best.empty:
        yield unresolved(f"times sooner than a flat server{told}", "no stack, or not the flat server, ran")
        return
    for wanted, ratio, whose in ((20, GEOMX_RATIO, "GeoMX's demo"), (50, 2 * GEOMX_RATIO, "twice that")):
        claim = f"{BEST} is {wanted} times sooner where communication is {ratio} times computation ({whose}){told}"
        apart = (best["ratio"] / ratio).map(math.log).abs()
        nearest = best[apart.rank(method="dense") == 1]
        if apart.min() > _NEAR:
            yield unresolved(claim, f"the nearest measured ratio is {nearest['ratio'].mean():.3g}")
            continue
        missing = int(nearest["to_target_s"].isna().sum())
        if missing:
            yield decided(claim, "–", False, f"{missing} of {len(nearest)} seeds of {BEST} did not reach the target")
        else:
            gains, censored = nearest["gain"].dropna().tolist(), bool(nearest["flat_s"].isna().any())
            yield between(claim, gains, wanted, unit=" times", censored=censored)


def table(found: Results) -> pd.DataFrame:
    """Return one row per back end, model, rate and stack, with how many times sooner than the flat server it is."""
    rows = []
    known = found.rows(sweep=tuple(MODELS))
    for place, runs in known.groupby(["back_end", "sweep", "rate_mbps", "variant"], sort=False):
        gains = runs["gain"].dropna().tolist()
        mean = mean_of(gains) if gains else None
        rows.append({
            **dict(zip(("back end", "model", "Mbit/s", "stack"), place, strict=True)),
            "communication / computation": runs["ratio"].mean(), "seeds at the target": len(gains),
            "s to the target": runs["to_target_s"].mean(), "times sooner": mean and mean.value,
            "±": mean and mean.half_width,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _ladder(axes: Axes, found: Results) -> None:
    """What each part brings where the ratio is GeoMX's."""
    rows = worlds.shown(found).rows(sweep=SMALL, rate_mbps=LADDER_MBPS)
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
RATIO, TIMES = "communication / computation of the flat server's round", "time of flat PS / time of the stack"
STUDY = Study(
    title="Time to the same accuracy against a flat parameter server",
    source="GeoMX README: '20x', published without rate and data",
    scenario=SCENARIO, sweeps=lambda quick: tuple(sweeps(quick)), target=TARGET, derive=derive, claims=claims,
    table=table, all_back_ends=True,
    columns={"rate_mbps": setting(LINK_RATE, mbps), "learning_rate": setting(LEARNING_RATE), "round_s": round_s,
             "to_target_s": lambda each: time_to_accuracy(each.run, TARGET)},
    looks=LOOKS,
    panels=(
        Panel(f"Model of {SMALL}", "gain", "ratio", log="xy", where={"sweep": SMALL}, x_label=RATIO, y_label=TIMES,
              levels={20.0: "GeoMX's claim"}, width=1.2),
        Panel(f"{BEST}, by model", "gain", "ratio", log="xy", where={"variant": BEST, "sweep": tuple(MODELS)},
              series="sweep", x_label=RATIO, y_label=TIMES, legend=True, levels={20.0: "20 times", 50.0: "50 times"}),
        Panel(f"What each part brings, {SMALL}, {LADDER_MBPS:g} Mbit/s", draw=_ladder,
              x_label="times sooner than a flat server"),
    ),
    size_in=(11.5, 4.0),
)  # fmt: skip
