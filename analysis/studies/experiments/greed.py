"""How greedy TSEngine should be: the time of a round over `max_greed`, and beside it a star and a balanced tree.

NetStorm's nine data centres, whose rates are drawn anew every 180 s, some six rounds, and a model of 47 MB: who always
takes the best known receiver does not learn of better ones, who never does sends over slow links (Zhou et al., TNSM
18(4), 2021, find the best in between). Sizes only, so nothing but times; seeds draw what is explored.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import look_of
from analysis.studies import worlds
from analysis.studies.drawing import horizontal
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep

SCENARIO = """
version: 1
name: greed
seed: 1
run: {on: simulate}
topology: {use: netstorm9, workers: 1}
training: {model: {kind: declared, name: resnet18}, data: none, compute: modelled, rounds: 24, evaluate_every: 24}
device: {step_time: 100 ms}
"""
GREEDS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
OVERLAYS = {"star": "star", "tree": "tree"} | {
    f"greed {greed:g}": f"{{kind: tsengine, max_greed: {greed:g}}}" for greed in GREEDS
}
WARM = 2  # rounds in which nothing is measured yet


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    variants = {name: {"overlay": f"{{tier1: star, tier2: {overlay}}}"} for name, overlay in OVERLAYS.items()}
    return (StudySweep("overlays", variants, seeds=1 if quick else 5),)


def round_s(each: StudyRun) -> float:
    """Return the mean time of a round of all workers, without the first ones."""
    rounds = each.run.tables["rounds"]
    return float(rounds.loc[rounds["round"] >= WARM, "duration_s"].mean())


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    greed = runs["variant"].str.extract(r"^greed (.*)$")[0].astype(float)
    return runs.assign(greed=greed, series=runs["variant"].where(greed.isna(), "TSEngine"))


def _beside(axes: Axes, found: Results) -> None:
    for name in ("star", "tree"):
        horizontal(axes, worlds.shown(found).mean("round_s", variant=name), name)


STUDY = Study(
    title="How greedy TSEngine should be", source="Zhou et al., TNSM 18(4), 2021 (TSEngine)",
    scenario=SCENARIO, sweeps=sweeps, columns={"round_s": round_s}, derive=derive,
    looks={"TSEngine": look_of("tsengine")},
    panels=(Panel("", "round_s", "greed", series="series", only=("TSEngine",), y_range=(0, None), draw=_beside,
                  x_label="max_greed (most often that the best known receiver is taken)",
                  y_label="time of a round (s)", legend=True),),
    size_in=(4.6, 3.1),
)  # fmt: skip
