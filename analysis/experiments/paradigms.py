"""All paradigms on four continents: accuracy over time, time to the same accuracy, and what crossed the WAN.

    python -m analysis.experiments.paradigms OUT [--on simulate] [--only ring,gloo]

The scenario ``scenarios/topologies/hmc4.yaml``, its model, data and clock; only the paradigm differs. Finished runs are
kept. Writes ``paradigms-BACKEND.csv`` and ``paradigms-BACKEND.png``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.experiments.synchronisation import LIMIT_S, command
from analysis.identity import series
from analysis.load import Run, load_run
from analysis.metrics import accuracy_curve, time_to_accuracy, wan_of_training
from testbed.policy.collective.peers import LIBRARIES

if TYPE_CHECKING:
    import pandas as pd

SCENARIO = Path("scenarios/topologies/hmc4.yaml")
TARGET = 0.9
COMMON = ("training.rounds=80", f"training.target_accuracy={TARGET}", "training.evaluate_every=5")
AT_WORKERS = "optimizer={kind: adam, learning_rate: 0.002, at: worker}"


def allreduce(algorithm: str) -> tuple[str, ...]:
    return (f"paradigm={{kind: allreduce, {algorithm}}}", AT_WORKERS)


def gossip(algorithm: str) -> tuple[str, ...]:
    return (f"paradigm={{kind: gossip, {algorithm}}}", AT_WORKERS)


PARADIGMS: dict[str, tuple[str, ...]] = {
    "ps": ("paradigm=ps",),
    "hips": ("paradigm=hips",),
    "hips-bisparse": ("paradigm=hips", "codec=bisparse"),
    "ring": allreduce("algorithm: ring"),
    "butterfly": allreduce("algorithm: butterfly"),
    "three-phase-ring": allreduce("algorithm: three_phase_ring"),
    "gloo": ("paradigm=gloo", AT_WORKERS),
    "mpi": ("paradigm=mpi", AT_WORKERS),
    "hitopk": allreduce("algorithm: hitopk, density: 5 %"),
    "flat-topk": allreduce("algorithm: flat_topk, density: 5 %"),
    "dpsgd": gossip("algorithm: dpsgd, graph: exponential"),
    "sgp": gossip("algorithm: sgp, graph: exponential"),
    "adpsgd": gossip("algorithm: adpsgd, graph: ring"),
}
LABELS = {
    "ps": "PS, one tier", "hips": "HiPS (two tiers)", "hips-bisparse": "HiPS, Bi-Sparse", "ring": "ring",
    "butterfly": "butterfly", "three-phase-ring": "three-phase ring", "gloo": "Gloo", "mpi": "MPICH",
    "hitopk": "HiTopKComm 5 %", "flat-topk": "flat top-k 5 %", "dpsgd": "D-PSGD", "sgp": "SGP", "adpsgd": "AD-PSGD",
}  # fmt: skip


def measure(out: Path, back_end: str, names: list[str]) -> dict[str, Run]:
    """One run of each, unless it is there already."""
    runs = {}
    for name in names:
        path = out / back_end / name
        if not (path / "result.json").is_file():
            words = ["run", str(SCENARIO), "--on", back_end, "--out", str(path), "--quiet"]
            for change in (*COMMON, *PARADIGMS[name]):
                words += ["--set", change]
            subprocess.run(command(*words), check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        runs[name] = load_run(path)
    return runs


def table(runs: dict[str, Run]) -> pd.DataFrame:
    """``paradigm, time_to_s, accuracy, rounds, iteration_s, wan_bytes, wan_bytes_per_round``; one row each."""
    import pandas as pd

    rows = []
    for name, run in runs.items():
        result = run.result or {}
        moved, done = float(wan_of_training(run.tables["transfers"])["payload_bytes"].sum()), run.tables["rounds"]
        rounds = len(done) / done["node"].nunique()  # of a worker, on average: some may be ahead of others
        rows.append({
            "paradigm": name, "time_to_s": time_to_accuracy(run, TARGET) or nan, "accuracy": result["accuracy"],
            "rounds": rounds, "iteration_s": result["round_time_s"], "wan_bytes": moved,
            "wan_bytes_per_round": moved / rounds if rounds else None,
        })  # fmt: skip
    return pd.DataFrame(rows)


def draw(runs: dict[str, Run], frame: pd.DataFrame, path: Path) -> None:
    """Accuracy over time, and for each its time to the target and its WAN bytes a round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    curves, times, moved = figure.subplots(1, 3, width_ratios=(2.2, 1, 1))
    for number, (name, run) in enumerate(runs.items()):
        look, curve = series(number), accuracy_curve(run)
        curves.plot(curve["time_s"], curve["accuracy"], color=look.color, marker=look.marker, ms=3, lw=1.2,
                    ls="-" if number < len(runs) / 2 else "--", label=LABELS[name])  # fmt: skip
    curves.axhline(TARGET, color="#666666", lw=0.8)
    curves.set(xlabel="time [s]", ylabel="test accuracy", xscale="log")
    curves.legend(frameon=False, fontsize=8)
    labels, places = [LABELS[name] for name in frame["paradigm"]], range(len(frame))
    colors = [series(number).color for number in places]
    times.barh(places, frame["time_to_s"].fillna(0), color=colors)
    for place, seconds in zip(places, frame["time_to_s"], strict=True):
        times.text(0 if isnan(seconds) else seconds, place, " never" if isnan(seconds) else f" {seconds:.0f}",
                   va="center", fontsize=8)  # fmt: skip
    times.set(xlabel=f"time to {TARGET:.0%} [s]", yticks=list(places), yticklabels=labels)
    times.margins(x=0.15)
    moved.barh(places, frame["wan_bytes_per_round"] / 1e6, color=colors)
    moved.set(xlabel="WAN payload a round [MB]", yticks=list(places), yticklabels=[])
    for axes in (times, moved):
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="run directories, table and figure")
    parser.add_argument("--on", default="simulate", choices=("emulate", "simulate", "local"))
    parser.add_argument("--only", default="", help="names, with commas; default: all")
    chosen = parser.parse_args()
    names = [name for name in chosen.only.split(",") if name] or list(PARADIGMS)
    if chosen.on == "simulate":
        names = [name for name in names if name not in LIBRARIES]  # their sockets are their own
    runs = measure(chosen.out, chosen.on, names)
    frame = table(runs)
    frame.to_csv(chosen.out / f"paradigms-{chosen.on}.csv", index=False)
    draw(runs, frame, chosen.out / f"paradigms-{chosen.on}.png")
    sys.stdout.write(frame.to_string(index=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
