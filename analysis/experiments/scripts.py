"""The ordinary PyTorch script of ``scenarios/scripts`` against the built-in workload: final accuracy over seeds.

    python -m analysis.experiments.scripts OUT [--seeds 5]

The same data centres, workers, digits, batch, number of steps, algorithm (FSA) and optimizer (Adam on every worker, on
the mean of all gradients); the script brings its own small network, the built-in workload is the demo CNN. Real
mathematics in virtual time; mean and 95 % confidence interval. What has been computed in OUT is kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from analysis.experiments.stragglers import write
from analysis.experiments.virtual import kept, run
from analysis.metrics import mean_of

SCRIPT = Path("scenarios/scripts/plain_pytorch.yaml")
JOB = (
    "workload=null", "training={model: cnn, data: digits, batch: 32, rounds: 120, evaluate_every: 20}",
    "optimizer={kind: adam, learning_rate: 0.002, at: worker}",
)  # fmt: skip
WORKLOADS: dict[str, tuple[str, ...]] = {"script": (), "built-in": JOB}


def measure(overrides: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Final accuracy on the test set."""
    result = run(SCRIPT, *overrides, f"seed={seed}")
    return {"accuracy": result.scores()[-1][1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    found = {
        name: [
            float(kept(chosen.out / f"{name}-{seed}.json", measure, overrides, seed)["accuracy"])
            for seed in range(1, chosen.seeds + 1)
        ]
        for name, overrides in WORKLOADS.items()
    }
    for name, values in found.items():
        mean = mean_of(values)
        write(f"{name:9} {mean.value:.4f} ± {mean.half_width:.4f}  ({', '.join(f'{value:.4f}' for value in values)})")
    difference = mean_of([a - b for a, b in zip(found["script"], found["built-in"], strict=True)])
    write(f"script - built-in: {difference.value:+.4f} ± {difference.half_width:.4f}")


if __name__ == "__main__":
    main()
