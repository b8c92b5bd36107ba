"""DGT against plain TCP on links that lose packets, for three sizes of a model; then on clean links.

    python -m analysis.experiments.lossy OUT [--on emulate] [--rounds 12] [--k 0.5]

Mean and 95th percentile of the time of a round. Only what goes up is cut into blocks: values come down by TCP, so a
round has one half that DGT cannot shorten. k is fixed, so that sizes can be compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from analysis.experiments.command import mean_and_p95, run
from analysis.experiments.stragglers import write

SCENARIO = """
version: 1
name: lossy
seed: 1
topology:
  data_centers:
    - {name: hub, central: true, workers: 1}
    - {name: left, workers: 1}
    - {name: right, workers: 1}
  links:
    - {between: [hub, left], rate: 20 Mbit/s, delay: 15 ms, queue: 0.25 bdp}
    - {between: [hub, right], rate: 20 Mbit/s, delay: 15 ms, queue: 0.25 bdp}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: {kind: mlp, hidden: 256, layers: 2}, data: digits, batch: 32, rounds: 12, evaluate_every: 12}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.002}
"""
HIDDEN = {"0.3 MB": 256, "1.2 MB": 512, "2.6 MB": 768}
NETWORKS = {"1 % loss": "topology.links[*].loss=1 %", "clean": "topology.links[*].queue=1 bdp"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--on", default="emulate", choices=("emulate", "simulate"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--k", type=float, default=0.5)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    scenario = chosen.out / "lossy.yaml"
    scenario.write_text(SCENARIO)
    rounds = chosen.rounds + 2  # the first is not counted, and the last has no successor
    orders = {"tcp": "order=fifo", "dgt": f"order={{kind: dgt, k: {chosen.k:g}, adaptive: false}}"}
    write(f"{'network':10} {'model':8} {'':4} {'mean':>9} {'p95':>9}   gain of the mean, of p95")
    for network, setting in NETWORKS.items():
        for size, hidden in HIDDEN.items():
            times: dict[str, tuple[float, float]] = {}
            for name, order in orders.items():
                settings = [setting, order, f"training.model.hidden={hidden}", f"training.rounds={rounds}",
                            f"training.evaluate_every={rounds}"]  # fmt: skip
                ended = run(scenario, chosen.on, chosen.out / chosen.on / f"{network}-{size}-{name}", settings)
                if ended.status != "done":
                    write(ended.status)
                    return 1
                times[name] = mean_and_p95(ended.rounds_s())
                mean, p95 = times[name]
                gains = "   ".join(
                    f"{1 - mine / tcp:6.1%}" for mine, tcp in zip(times[name], times["tcp"], strict=True)
                )
                write(f"{network:10} {size:8} {name:4} {mean:7.3f} s {p95:7.3f} s   {gains if name != 'tcp' else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
