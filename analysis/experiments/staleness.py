"""What a gradient's age costs: DC-ASGD against plain asynchronous SGD at 0, 2, 4, 8 and 16 updates of delay.

    python -m analysis.experiments.staleness OUT [--seeds 5] [--updates 510]

tau + 1 equal workers of one data centre take turns, so every gradient is tau updates old (Zheng et al., ICML 2017:
error against delay). The number of updates, and so of samples, is the same everywhere. Real mathematics in virtual
time; mean and 95 % confidence interval (Student's t) of loss and accuracy on the test set. OUT gets staleness.csv and
staleness.png; what has been computed there is kept.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.stragglers import write
from analysis.experiments.virtual import kept, run
from analysis.figures import panels
from analysis.figures.papers.drawing import line
from analysis.identity import look_of
from analysis.metrics import mean_of

SCENARIO = """
version: 1
name: staleness
seed: 1
run: {on: simulate}
paradigm: ps
sync: tap
topology:
  data_centers: [{name: hub, central: true, workers: 1}]
training: {model: {kind: mlp, hidden: 32}, data: digits, batch: 32, rounds: 1, evaluate_every: 1}
device: {step_time: 100 ms, variation: 2 %}
"""
DELAYS = (0, 2, 4, 8, 16)
VARIANTS = {"ASGD": "kind: sgd", "DC-ASGD": "kind: dcasgd, compensation: {compensation:g}"}
LOOKS = {"ASGD": look_of("tap", "ASGD"), "DC-ASGD": look_of("dcasgd")}


def measure(optimizer: str, delay: int, seed: int, updates: int) -> dict[str, Any]:
    """Mean staleness seen, final accuracy, final loss."""
    workers = delay + 1
    rounds = updates // workers
    result = run(
        SCENARIO, f"data_centers[hub].workers={workers}", f"training.rounds={rounds}",
        f"training.evaluate_every={rounds}", f"seed={seed}", f"optimizer={{{optimizer}}}",
    )  # fmt: skip
    seen = statistics.fmean(event["staleness"] for event in result.of("update") if event["key"] == 0)
    _, accuracy, loss = result.scores()[-1]
    return {"seen": seen, "accuracy": accuracy, "loss": loss}


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % confidence interval."""
    mean = mean_of(values)
    return f"{mean.value:7.4f} ± {mean.half_width:.4f}"


def draw(rows: pd.DataFrame) -> Figure:
    with panels.style():
        figure = Figure(figsize=(7.4, 3.1), layout="constrained")
        for axes, field, label in zip(figure.subplots(1, 2), ("accuracy", "loss"), ("accuracy", "loss"), strict=True):
            for name, look in LOOKS.items():
                line(axes, rows[rows["variant"] == name], "delay", field, look)
            axes.set_xlabel("delay of every gradient (updates)")
            axes.set_ylabel(f"test {label}")
            axes.set_xticks(DELAYS)
        axes.legend()
        return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=510)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--compensation", type=float, default=2.0, help="lambda of DC-ASGD")
    chosen = parser.parse_args()
    rows = []
    write(f"{'delay':>5} {'':7} {'seen':>5}  {'accuracy':18} {'loss':18}")
    for delay in DELAYS:
        for name, template in VARIANTS.items():
            optimizer = f"{template.format(compensation=chosen.compensation)}, learning_rate: {chosen.rate:g}"
            new = []
            for seed in range(1, chosen.seeds + 1):
                key = f"{name}-{delay}-{seed}-{chosen.updates}-{chosen.rate:g}"
                key += f"-{chosen.compensation:g}" if name == "DC-ASGD" else ""
                one = kept(chosen.out / f"{key}.json".lower(), measure, optimizer, delay, seed, chosen.updates)
                new.append({"variant": name, "delay": delay, "seed": seed, **one})
            accuracy, loss = (interval([row[field] for row in new]) for field in ("accuracy", "loss"))
            seen = statistics.fmean(row["seen"] for row in new)
            write(f"{delay:5} {name:7} {seen:5.1f}  {accuracy:18} {loss:18}")
            rows += new
    frame = pd.DataFrame(rows)
    frame.to_csv(chosen.out / "staleness.csv", index=False)
    draw(frame).savefig(chosen.out / "staleness.png")


if __name__ == "__main__":
    main()
