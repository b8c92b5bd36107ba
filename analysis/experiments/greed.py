"""How greedy TSEngine should be: the time of a round over `max_greed`, and beside it a star and a balanced tree.

    python -m analysis.experiments.greed OUT [--seeds 5] [--rounds 24]

NetStorm's nine data centres, whose rates are drawn anew every 180 s, some six rounds, and a model of 47 MB: who always
takes the best known receiver does not learn of better ones, who never does sends over slow links (Zhou et al., TNSM
18(4), 2021, find the best in between). Sizes only, so nothing but times; mean and 95 % confidence interval over seeds,
which draw what is explored. OUT gets greed.csv and greed.png; what has been computed there is kept.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.stragglers import write
from analysis.experiments.virtual import kept, run
from analysis.figures import panels
from analysis.identity import look_of
from analysis.metrics import mean_of

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
BESIDE = {"star": ":", "tree": "--"}
WARM = 2  # rounds in which nothing is measured yet


def measure(overlay: str, seed: int, rounds: int) -> dict[str, float]:
    """Mean time of a round of all workers, in seconds, without the first ones."""
    result = run(
        SCENARIO, f"overlay={{tier1: star, tier2: {overlay}}}", f"seed={seed}", f"training.rounds={rounds}",
        f"training.evaluate_every={rounds}",
    )  # fmt: skip
    times = [event["t"] - event["t0"] for event in result.of("round") if event["round"] >= WARM]
    return {"round_s": statistics.fmean(times)}


def overlays() -> dict[str, str]:
    """Label to the value of the axis."""
    return {name: name for name in BESIDE} | {
        f"greed {greed:g}": f"{{kind: tsengine, max_greed: {greed:g}}}" for greed in GREEDS
    }


def draw(rows: pd.DataFrame) -> Figure:
    """Round time over greed, with the other overlays as levels."""
    look = look_of("tsengine")
    means = {name: mean_of(group["round_s"].tolist()) for name, group in rows.groupby("overlay")}
    with panels.style():
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        axes = figure.subplots()
        seen = [means[f"greed {greed:g}"] for greed in GREEDS]
        axes.errorbar(
            GREEDS, [mean.value for mean in seen], [mean.half_width for mean in seen],
            color=look.color, marker=look.marker, capsize=3, label=look.label,
        )  # fmt: skip
        for name, line in BESIDE.items():
            axes.axhline(means[name].value, color=panels.MUTED, linestyle=line, label=name)
        axes.set_xlabel("max_greed (most often that the best known receiver is taken)")
        axes.set_ylabel("time of a round (s)")
        axes.set_ylim(bottom=0)
        axes.legend()
        return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=24)
    chosen = parser.parse_args()
    rows = []
    for name, overlay in overlays().items():
        new = []
        for seed in range(1, chosen.seeds + 1):
            key = f"{name.replace(' ', '-')}-{seed}-{chosen.rounds}.json"
            new.append({"overlay": name, "seed": seed, **kept(chosen.out / key, measure, overlay, seed, chosen.rounds)})
        mean = mean_of([row["round_s"] for row in new])
        write(f"{name:12} {mean.value:8.3f} ± {mean.half_width:.3f} s a round")
        rows += new
    frame = pd.DataFrame(rows)
    frame.to_csv(chosen.out / "greed.csv", index=False)
    draw(frame).savefig(chosen.out / "greed.png")


if __name__ == "__main__":
    main()
