"""Accuracy over the number of updates, emulated and simulated with real mathematics, where the bits need not be equal.

    python -m analysis.experiments.agreement OUT [--sites 4] [--seeds 1 2] [--on simulate emulate]

MixedSync, HFA, ESync, Bi-Sparse and DGT with loss, on data centres of one worker around one that only serves; the
demo's CNN on real digits. What arrives when, and what is lost, differs between worlds where it decides (MixedSync,
DGT), so these train until they have converged; HFA and Bi-Sparse must agree to the bit. Finished runs are kept. Writes
``agreement.csv``, a row per technique and seed with the differences in points, and ``agreement.png``: lines are
simulated, marks emulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.experiments.command import run
from analysis.experiments.stragglers import write
from analysis.figures import panels
from analysis.identity import look_of
from analysis.load import Run, load_run
from analysis.metrics import accuracy_curve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ADAM = "optimizer={kind: adam, learning_rate: 0.003, at: worker}"
_LONG = "training.rounds=300", "training.evaluate_every=20"  # until accuracy grows no more
VARIANTS: dict[str, tuple[str, ...]] = {
    "mixedsync": ("sync=mixedsync", "optimizer={kind: adam, learning_rate: 0.0003}", *_LONG),
    "hfa": ("sync={kind: hfa, k1: 4, k2: 2}", _ADAM, "training.rounds=30", "training.evaluate_every=2"),
    "esync": ("sync=esync", _ADAM, "training.rounds=50", "training.evaluate_every=4"),
    "bisparse": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.05, bound: 1000, pull: sparse-sum}}", _ADAM),
    "dgt": ("order={kind: dgt, k: 0.5}", "topology.links[*].loss=0.3 %", *_LONG),
}
ROUNDS, EVERY = 150, 10


def scenario(sites: int) -> dict[str, Any]:
    """A star of so many data centres, 15 to 60 ms away."""
    names = [f"site{number}" for number in range(sites)]
    centres = [{"name": "central", "central": True, "workers": 0}, *({"name": name, "workers": 1} for name in names)]
    return {
        "version": 1, "name": "agreement", "seed": 1,
        "topology": {"data_centers": centres, "links": [
            {"between": ["central", name], "rate": "20 Mbit/s", "delay": f"{15 + 45 * number / max(1, sites - 1):g} ms"}
            for number, name in enumerate(names)]},
        "training": {"model": "cnn", "data": "digits", "split": "iid", "batch": 32, "rounds": ROUNDS,
                     "evaluate_every": EVERY},
        "device": {"pace": "paced", "step_time": "100 ms", "variation": "10 %"},
        "optimizer": {"kind": "adam", "learning_rate": 0.002},
    }  # fmt: skip


def measure(out: Path, back_end: str, seed: int) -> dict[str, Run]:
    """One run of each technique. ``RuntimeError`` if one does not end well."""
    runs = {}
    for name, settings in VARIANTS.items():
        ended = run(out / "agreement.yaml", back_end, out / back_end / f"{name}-{seed}", (*settings, f"seed={seed}"))
        if ended.status not in ("done", "degraded"):
            raise RuntimeError(f"{back_end}, {name}, seed {seed}: {ended.status}")
        runs[name] = load_run(ended.path)
    return runs


def difference(real: Run, virtual: Run) -> dict[str, float]:
    """Emulated minus simulated accuracy at the same rounds, in points."""
    curves = accuracy_curve(real).merge(accuracy_curve(virtual), on="round", suffixes=("_real", "_virtual"))
    points = 100 * (curves["accuracy_real"] - curves["accuracy_virtual"])
    return {
        "evaluations": len(points),
        "end_emulated": float(curves["accuracy_real"].iloc[-1]),
        "end_simulated": float(curves["accuracy_virtual"].iloc[-1]),
        "end_points": float(points.iloc[-1]),
        "mean_points": float(points.mean()),
        "largest_points": float(points.abs().max()),
    }


def draw(real: dict[str, Run], virtual: dict[str, Run]) -> Figure:
    """Accuracy over rounds, a panel per technique."""
    from matplotlib.figure import Figure

    with panels.style():
        figure = Figure(figsize=(7.4, 4.4), layout="constrained")
        cells = figure.subplots(2, 3, sharey=True).flat
        for axes, name in zip(cells, VARIANTS, strict=False):
            look = look_of(name)
            line, marks = accuracy_curve(virtual[name]), accuracy_curve(real[name])
            axes.plot(line["round"], line["accuracy"], color=look.color, label="simulated")
            axes.plot(marks["round"], marks["accuracy"], color=look.color, linestyle="", marker=look.marker,
                      markersize=4, label="emulated")  # fmt: skip
            axes.set(title=look.label, xlabel="round", ylabel="test accuracy")
            axes.legend(loc="lower right")
        figure.axes[-1].set_visible(False)
        return figure


def table(runs: dict[tuple[str, int], dict[str, Run]], seeds: list[int]) -> pd.DataFrame:
    """A row per technique and seed."""
    import pandas as pd

    return pd.DataFrame([
        {"technique": name, "seed": seed,
         **difference(runs["emulate", seed][name], runs["simulate", seed][name])}
        for name in VARIANTS for seed in seeds
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--on", nargs="+", default=["simulate", "emulate"], choices=("simulate", "emulate"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "agreement.yaml").write_text(json.dumps(scenario(chosen.sites)))
    runs = {(on, seed): measure(chosen.out, on, seed) for on in chosen.on for seed in chosen.seeds}
    if len(chosen.on) == 2:
        frame = table(runs, chosen.seeds)
        frame.to_csv(chosen.out / "agreement.csv", index=False, float_format="%.4f")
        first = chosen.seeds[0]
        draw(runs["emulate", first], runs["simulate", first]).savefig(chosen.out / "agreement.png")
        write(frame.to_string(index=False, float_format="{:.4f}".format))
    return 0


if __name__ == "__main__":
    sys.exit(main())
