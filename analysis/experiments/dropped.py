"""What lost gradients cost: DGT, the same with blocks chosen at random, and unimportant blocks not even sent.

    python -m analysis.experiments.dropped [--seeds 5] [--rounds 60] [--k 0.2] [--loss 0.3]

Accuracy on the test set after so many rounds, real mathematics in virtual time. A share k of the blocks goes reliably;
of the others the network loses a share, and what is lost counts as zero. Zhou et al. (FGCS 121, 2021) report DGT >=
random >= sender-drop.
"""

from __future__ import annotations

import argparse
import statistics

from analysis.experiments.staleness import interval
from analysis.experiments.stragglers import write
from analysis.experiments.virtual import run

SCENARIO = """
version: 1
name: dropped
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: hub, central: true, workers: 1}
    - {name: left, workers: 1}
    - {name: right, workers: 1}
  links:
    - {between: [hub, left], rate: 20 Mbit/s, delay: 15 ms}
    - {between: [hub, right], rate: 20 Mbit/s, delay: 15 ms}
training: {model: {kind: mlp, hidden: 128, layers: 2}, data: digits, batch: 32, rounds: 60, evaluate_every: 60}
device: {step_time: 50 ms}
optimizer: {kind: sgd, learning_rate: 0.05}
"""
_DGT = "order={{kind: dgt, k: {k}, k_min: {k}, adaptive: false, block: 1024 bytes, {rest}}}"
VARIANTS = {
    "nothing lost": "",
    "DGT": "late: zero",
    "random": "late: zero, selection: random",
    "sender-drop": "late: sender-drop",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--k", type=float, default=0.2)
    parser.add_argument("--loss", type=float, default=0.3, help="share of packets that links lose on the way up")
    chosen = parser.parse_args()
    ends = f"training.rounds={chosen.rounds}", f"training.evaluate_every={chosen.rounds}"
    write(f"{'':14} {'accuracy':18} {'loss':18} blocks lost")
    for name, rest in VARIANTS.items():
        order = _DGT.format(k=f"{chosen.k:g}", rest=rest) if rest else "order=fifo"
        scores, gone = [], []
        for seed in range(1, chosen.seeds + 1):
            network = f"topology.links[*].reverse={{loss: {chosen.loss if rest else 0:g}}}"
            result = run(SCENARIO, network, f"seed={seed}", order, *ends)
            scores.append(result.scores()[-1])
            blocks = [(event["lost"], event["sent"]) for event in result.of("blocks")]
            gone.append(sum(lost for lost, _ in blocks) / max(1, sum(sent for _, sent in blocks)))
        accuracies, losses = ([score[part] for score in scores] for part in (1, 2))
        write(f"{name:14} {interval(accuracies):18} {interval(losses):18} {statistics.fmean(gone):.1%}")


if __name__ == "__main__":
    main()
