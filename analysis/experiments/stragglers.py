"""A data centre, or a single worker, ten times slower: time to the same accuracy, throughput, shares of computing.

    python -m analysis.experiments.stragglers OUT [--target 0.9]

Three data centres of two workers, 20 Mbit/s and 45 and 84 ms between them; the demo CNN on digits, in virtual time with
real mathematics. Li et al. (ESync, IEEE TSC 2022) report throughput ESync > ASGD >= DC-ASGD > SSGD, and equal shares of
computing at all devices. OUT gets stragglers.csv and stragglers.png; what has been computed there is kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.virtual import Run, kept, run
from analysis.figures import panels
from analysis.identity import look_of

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
training: {model: cnn, data: digits, batch: 32, rounds: 2000, evaluate_every: 10}
device: {step_time: 200 ms}
"""
SLOW = {
    "nobody": (),
    "one data centre": ("data_centers[tokyo].device={speed: 0.1}",),
    "one worker": ("data_centers[frankfurt].worker_devices={worker1: {speed: 0.1}}",),
}
_ADAM = "optimizer={kind: adam, learning_rate: 0.002, at: global}"
_LOCAL = "optimizer={kind: adam, learning_rate: 0.002, at: worker}"
_SGD, _DC = (f"optimizer={{kind: {kind}, learning_rate: 0.05}}" for kind in ("sgd", "dcasgd"))
ALGORITHMS = {
    "FSA": ("sync=fsa", _ADAM),
    "MixedSync": ("sync=mixedsync", _DC),
    "ESync": ("sync=esync", _LOCAL, "training.evaluate_every=1"),
    "SSGD": ("paradigm=ps", "sync=bsp", _ADAM),
    "ASGD": ("paradigm=ps", "sync=tap", _SGD),
    "DC-ASGD": ("paradigm=ps", "sync=tap", _DC),
}
LOOKS = {
    name: look_of(key, name)
    for name, key in zip(ALGORITHMS, ("fsa", "mixedsync", "esync", "bsp", "tap", "dcasgd"), strict=True)
}


def measure(slower: tuple[str, ...], overrides: tuple[str, ...], target: float) -> dict[str, Any]:
    """Seconds to the target, samples per second until the end, largest difference of computing shares, the curve."""
    result = run(SCENARIO, *slower, *overrides, f"training.target_accuracy={target:g}")
    end_s = max(event["t"] for event in result.of("round") if event["node"] == "virginia/worker0")
    shares = result.compute_shares(end_s)
    return {
        "time_s": result.time_to(target), "samples_per_s": result.samples_per_s(end_s), "shares": shares,
        "spread": max(shares.values()) - min(shares.values()), "curve": [[0.0, 0.1], *_curve(result)],
    }  # fmt: skip


def _curve(result: Run) -> list[list[float]]:
    return [[at_s, accuracy] for at_s, accuracy, _ in result.scores()]


def draw(found: dict[tuple[str, str], dict[str, Any]], target: float) -> Figure:
    """Accuracy over time above; throughput, and what each worker computes, below."""
    with panels.style():
        figure = Figure(figsize=(11, 6), layout="constrained")
        top, bottom = figure.subplots(2, 3)
        for axes, who in zip(top, SLOW, strict=True):
            _curves(axes, {name: found[who, name] for name in ALGORITHMS}, target)
            axes.set_title(f"10 times slower: {who}")
        _bars(bottom[0], found, "samples_per_s", "Throughput until the target", "samples/s")
        _bars(bottom[1], found, "time_s", f"Time to {target:.0%}", "s")
        _bars(bottom[2], found, "spread", "Largest difference of computing shares", "share of time")
        figure.legend(*top[0].get_legend_handles_labels(), loc="outside upper left", ncols=7)
        return figure


def _curves(axes: Axes, runs: dict[str, dict[str, Any]], target: float) -> None:
    for name, one in runs.items():
        xs, ys = zip(*one["curve"], strict=True)
        panels.curve(axes, xs, ys, LOOKS[name])
    panels.accuracy_axis(axes, target)
    axes.set_xscale("log")
    axes.set_xlim(left=3)
    axes.set_xticks((3, 10, 30, 100), ("3", "10", "30", "100"))
    axes.set_xticks((), minor=True)
    axes.set_xlabel("training time (s)")


def _bars(axes: Axes, found: dict[tuple[str, str], dict[str, Any]], field: str, title: str, unit: str) -> None:
    for place, name in enumerate(ALGORITHMS):
        xs = [number + (place - 2.5) * 0.14 for number in range(len(SLOW))]
        axes.bar(xs, [found[who, name][field] or 0 for who in SLOW], width=0.13, color=LOOKS[name].color)
    axes.set_xticks(range(len(SLOW)), list(SLOW))
    axes.grid(axis="x", visible=False)
    axes.set_title(title)
    axes.set_ylabel(unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", type=float, default=0.9)
    chosen = parser.parse_args()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for who, slower in SLOW.items():
        write(f"\n10x slower: {who}\n{'':10} {'s to target':>12} {'against FSA':>12} {'samples/s':>10} {'spread':>7}")
        for name, overrides in ALGORITHMS.items():
            key = f"{who}-{name}-{chosen.target:g}".replace(" ", "-").lower()
            one = found[who, name] = kept(chosen.out / f"{key}.json", measure, slower, overrides, chosen.target)
            time_s, base_s = (each["time_s"] or float("nan") for each in (one, found[who, "FSA"]))
            write(
                f"{name:10} {time_s:12.1f} {base_s / time_s:11.2f}x {one['samples_per_s']:10.0f} {one['spread']:7.2f}"
            )
    plain = ("time_s", "samples_per_s", "spread")
    rows = [{"slow": who, "algorithm": name} | {field: one[field] for field in plain}
            for (who, name), one in found.items()]  # fmt: skip
    pd.DataFrame(rows).to_csv(chosen.out / "stragglers.csv", index=False)
    draw(found, chosen.target).savefig(chosen.out / "stragglers.png")


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
