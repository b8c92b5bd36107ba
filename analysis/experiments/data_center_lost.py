"""A data centre is cut off for a minute and comes back: accuracy over time, of those that wait and those that do not.

    python -m analysis.experiments.data_center_lost OUT [--on simulate emulate]

Three data centres of two workers, the demo's CNN on real digits. At 15 s all links of one are down, for 60 s: nobody is
declared dead (FSA, MixedSync, HFA, gossip). "FSA, continue": its processes are killed instead, the others go on and
stand for it, and it comes back after the same minute. TCP finds a link that is up again when its next retransmission
is due, at doubled intervals: up to as long again after the minute, in both worlds. Finished runs are kept. Writes
``data-center-lost.csv`` (accuracy before, at the end of the minute, and in the end) and ``data-center-lost.png``: lines
are simulated, marks emulated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.experiments.command import run
from analysis.experiments.stragglers import write
from analysis.figures import panels
from analysis.identity import TECHNIQUES, Identity
from analysis.load import Run, load_run
from analysis.metrics import accuracy_curve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LOST_S, BACK_S = 15.0, 75.0
SCENARIO = """
version: 1
name: data-center-lost
seed: 1
topology:
  data_centers:
    - {name: virginia, central: true, workers: 2}
    - {name: frankfurt, workers: 2}
    - {name: tokyo, workers: 2}
  links:
    - {between: [virginia, frankfurt], rate: 20 Mbit/s, delay: 45 ms}
    - {between: [virginia, tokyo], rate: 20 Mbit/s, delay: 84 ms}
    - {between: [frankfurt, tokyo], rate: 20 Mbit/s, delay: 112 ms}
training: {model: cnn, data: digits, batch: 16, rounds: 150, evaluate_every: 5}
device: {pace: paced, step_time: 400 ms}
optimizer: {kind: adam, learning_rate: 0.001}
timeouts: {dead_after: 150 s}
faults:
  - {kind: down, data_center: tokyo, at: 15 s, for: 60 s}
"""
_LOCAL = "optimizer={kind: adam, learning_rate: 0.001, at: worker}"
_KILLED = ("faults=[{kind: kill, data_center: tokyo, at: 15 s, for: 60 s}]", "recovery={on_failure: continue}",
           "timeouts={dead_after: 10 s}")  # fmt: skip
RUNS: dict[str, tuple[str, ...]] = {
    "fsa": (),
    "fsa-continue": _KILLED,
    "mixedsync": ("sync=mixedsync", "training.rounds=260"),
    "hfa": ("sync={kind: hfa, k1: 5, k2: 2}", _LOCAL, "training.rounds=40", "training.evaluate_every=1"),
    "gossip": ("paradigm={kind: gossip, algorithm: adpsgd, graph: ring}", _LOCAL, "training.rounds=200"),
}
LOOKS = {
    "fsa": TECHNIQUES["fsa"],
    "fsa-continue": Identity("FSA, continue", "#56B4E9", "X"),
    "mixedsync": TECHNIQUES["mixedsync"],
    "hfa": TECHNIQUES["hfa"],
    "gossip": Identity("AD-PSGD (gossip)", TECHNIQUES["gossip"].color, "*"),
}


def measure(out: Path, back_end: str) -> dict[str, Run]:
    """One run of each. ``RuntimeError`` if one does not end well."""
    runs = {}
    for name, settings in RUNS.items():
        ended = run(out / "data-center-lost.yaml", back_end, out / back_end / name, settings)
        if ended.status not in ("done", "degraded"):
            raise RuntimeError(f"{back_end}, {name}: {ended.status}")
        runs[name] = load_run(ended.path)
    return runs


def table(runs: dict[str, dict[str, Run]]) -> pd.DataFrame:
    """``on, technique`` and accuracies: the last one seen before the loss, before the return, and in the end."""
    import pandas as pd

    rows = []
    for back_end, those in runs.items():
        for name, each in those.items():
            curve = accuracy_curve(each)
            seen = [curve[curve["time_s"] <= moment]["accuracy"] for moment in (LOST_S, BACK_S, float("inf"))]
            before, during, after = (float(part.iloc[-1]) if len(part) else 0.0 for part in seen)
            rows.append({
                "on": back_end, "technique": name, "before": before, "at_return": during, "end": after,
                "end_s": float(curve["time_s"].iloc[-1]),
            })  # fmt: skip
    return pd.DataFrame(rows)


def draw(runs: dict[str, dict[str, Run]]) -> Figure:
    """Accuracy over time, the minute shaded. Until the next evaluation, the last one is what is known."""
    from matplotlib.figure import Figure

    with panels.style():
        figure = Figure(figsize=(7.4, 4.0), layout="constrained")
        axes = figure.subplots()
        axes.axvspan(LOST_S, BACK_S, color="#000000", alpha=0.07, linewidth=0)
        axes.annotate("one of three data centres is lost", ((LOST_S + BACK_S) / 2, 0.02), ha="center",
                      xycoords=("data", "axes fraction"), color=panels.MUTED, fontsize=7.5)  # fmt: skip
        for name, look in LOOKS.items():
            for back_end in runs:
                curve, simulated = accuracy_curve(runs[back_end][name]), back_end == "simulate"
                axes.plot(
                    curve["time_s"], curve["accuracy"], color=look.color, linestyle="-" if simulated else "",
                    drawstyle="steps-post",
                    marker="" if simulated else look.marker, markersize=3.5, alpha=1.0 if simulated else 0.7,
                    label=look.label if simulated or "simulate" not in runs else None,
                )  # fmt: skip
        marks = " (lines: simulated, marks: emulated)" if len(runs) > 1 else ""
        axes.set(xlabel="time (s)", ylabel="test accuracy", title=f"A data centre lost for a minute{marks}")
        axes.legend(loc="lower right", ncols=1)
        return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--on", nargs="+", default=["simulate"], choices=("simulate", "emulate"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "data-center-lost.yaml").write_text(SCENARIO)
    runs = {back_end: measure(chosen.out, back_end) for back_end in chosen.on}
    frame = table(runs)
    frame.to_csv(chosen.out / "data-center-lost.csv", index=False)
    draw(runs).savefig(chosen.out / "data-center-lost.png", dpi=160)
    write(frame.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
