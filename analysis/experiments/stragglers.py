"""A data centre, or a single worker, ten times slower: time to the same accuracy, throughput, shares of computing.

    python -m analysis.experiments.stragglers [--target 0.9]

Three data centres of two workers, 20 Mbit/s and 45 and 84 ms between them; the demo CNN on digits, in virtual time with
real mathematics. Li et al. (ESync, IEEE TSC 2022) report throughput ESync > ASGD >= DC-ASGD > SSGD, and equal shares of
computing at all devices.
"""

from __future__ import annotations

import argparse
import sys

from analysis.experiments.virtual import Run, run

SCENARIO = """
version: 1
name: stragglers
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: virginia, central: true, workers: 2}
    - {name: frankfurt, workers: 2}
    - {name: tokyo, workers: 2}
  links:
    - {between: [virginia, frankfurt], rate: 20 Mbit/s, delay: 45 ms}
    - {between: [virginia, tokyo], rate: 20 Mbit/s, delay: 84 ms}
training: {model: cnn, data: digits, batch: 32, iterations: 4000, evaluate_every: 10}
device: {step_time: 200 ms}
"""
SLOW = {
    "nobody": (),
    "tokyo": ("data_centers[tokyo].device={speed: 0.1}",),
    "one worker": ("data_centers[frankfurt].worker_devices={worker1: {speed: 0.1}}",),
}
_ADAM = "optimizer={kind: adam, learning_rate: 0.002, at: global}"
_LOCAL = "optimizer={kind: adam, learning_rate: 0.002, at: worker}"
_SGD, _DC = (f"optimizer={{kind: {kind}, learning_rate: 0.05}}" for kind in ("sgd", "dcasgd"))
ALGORITHMS = {
    "FSA": ("sync=fsa", _ADAM),
    "MixedSync": ("sync=mixedsync", _DC),
    "ESync": ("sync=esync", _LOCAL, "training.evaluate_every=1"),
    "SSGD (one tier)": ("paradigm=ps", "sync=bsp", _ADAM),
    "ASGD (one tier)": ("paradigm=ps", "sync=tap", _SGD),
    "DC-ASGD (one tier)": ("paradigm=ps", "sync=tap", _DC),
}


def row(result: Run, target: float) -> tuple[float, float, float]:
    """Seconds to the target, samples per second until then, largest difference of computing shares."""
    time_s = result.time_to(target) or float("nan")
    end_s = max(event["t"] for event in result.of("round") if event["node"] == "virginia/worker0")
    shares = result.compute_shares(end_s)
    return time_s, result.samples_per_s(end_s), max(shares.values()) - min(shares.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=0.9)
    target = parser.parse_args().target
    for who, slower in SLOW.items():
        base_s = None
        write(f"\n10x slower: {who}\n{'':20} {'s to target':>12} {'against FSA':>12} {'samples/s':>10} {'spread':>7}")
        for name, overrides in ALGORITHMS.items():
            goal = f"training.target_accuracy={target:g}"
            time_s, rate, spread = row(run(SCENARIO, *slower, *overrides, goal), target)
            base_s = base_s or time_s
            write(f"{name:20} {time_s:12.1f} {base_s / time_s:11.2f}x {rate:10.0f} {spread:7.2f}")


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
