"""What a gradient's age costs: DC-ASGD against plain asynchronous SGD at 0, 2, 4, 8 and 16 updates of delay.

    python -m analysis.experiments.staleness [--seeds 5] [--updates 510]

tau + 1 equal workers of one data centre take turns, so every gradient is tau updates old (Zheng et al., ICML 2017:
error against delay). The number of updates, and so of samples, is the same everywhere. Real mathematics in virtual
time; mean and 95 % confidence interval (Student's t) of loss and accuracy on the test set.
"""

from __future__ import annotations

import argparse
import math
import statistics

from scipy.stats import t as student

from analysis.experiments.stragglers import write
from analysis.experiments.virtual import run

SCENARIO = """
version: 1
name: staleness
seed: 1
run: {on: simulate}
paradigm: ps
sync: tap
topology:
  data_centers: [{name: hub, central: true, workers: 1}]
training: {model: {kind: mlp, hidden: 32}, data: digits, batch: 32, iterations: 1, evaluate_every: 1}
device: {step_time: 100 ms, variation: 2 %}
"""
DELAYS = (0, 2, 4, 8, 16)


def measure(kind: str, delay: int, seed: int, updates: int, rate: float) -> tuple[float, float, float]:
    """Mean staleness seen, final accuracy, final loss."""
    workers = delay + 1
    rounds = updates // workers
    compensation = ", compensation: 2" if kind == "dcasgd" else ""
    result = run(
        SCENARIO, f"data_centers[hub].workers={workers}", f"training.iterations={rounds}",
        f"training.evaluate_every={rounds}", f"seed={seed}",
        f"optimizer={{kind: {kind}, learning_rate: {rate:g}{compensation}}}",
    )  # fmt: skip
    seen = statistics.fmean(event["staleness"] for event in result.of("update") if event["key"] == 0)
    _, accuracy, loss = result.scores()[-1]
    return seen, accuracy, loss


def interval(values: list[float]) -> str:
    """Mean and half the width of its 95 % confidence interval."""
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):7.4f} ± {half:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=510)
    parser.add_argument("--rate", type=float, default=0.2)
    chosen = parser.parse_args()
    write(f"{'delay':>5} {'':7} {'seen':>5}  {'accuracy':18} {'loss':18}")
    for delay in DELAYS:
        for kind in ("sgd", "dcasgd"):
            rows = [measure(kind, delay, seed, chosen.updates, chosen.rate) for seed in range(1, chosen.seeds + 1)]
            seen, accuracies, losses = (list(column) for column in zip(*rows, strict=True))
            line = f"{delay:5} {kind:7} {statistics.fmean(seen):5.1f}  {interval(accuracies):18} {interval(losses):18}"
            write(line)


if __name__ == "__main__":
    main()
