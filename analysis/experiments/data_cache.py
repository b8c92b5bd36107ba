"""A data cache from cold to warm: how long each iteration takes, and where its samples come from.

    python -m analysis.experiments.data_cache OUT [--on simulate]

The scenario ``scenarios/paradigms/data-cache.yaml`` on one worker per data centre, between which there is so fast a
network that a step of 50 ms and loading are all that takes time: without any cache (every batch from
the store, nothing ahead), with the cache from cold, the same again with the disk that the first run has filled, and
with samples decoded in memory from the start. Writes ``data_cache.csv`` and ``data_cache.png``. All must end with equal
bits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.experiments.synchronisation import command
from analysis.identity import series
from analysis.load import Run, load_run

if TYPE_CHECKING:
    import pandas as pd

SCENARIO = Path("scenarios/paradigms/data-cache.yaml")
LIMIT_S = 600.0
LEVELS = ("memory", "disk", "neighbour", "remote")
COMMON = (
    "training.rounds=90", "training.target_accuracy=null", "topology.data_centers[*].workers=1",
    "topology.links[*].rate=10 Gbit/s", "topology.links[*].delay=1 ms",
)  # fmt: skip
CACHE = "kind: cached, rate: 200 kbit/s, latency: 20 ms, decode: 0.2 ms"


def variants(disk: Path) -> dict[str, str]:
    """Label to ``training.loading``. The order matters: the second fills the disk for the third."""
    return {
        "no cache": f"{{{CACHE}, memory: 1 bytes, disk: 1 bytes, prefetch: 0}}",
        "cache, cold": f"{{{CACHE}, prefetch: 2, folder: '{disk}'}}",
        "cache, warm disk": f"{{{CACHE}, prefetch: 2, folder: '{disk}'}}",
        "all in memory": "in_memory",
    }


def measure(out: Path, back_end: str) -> dict[str, Run]:
    """One run of every variant."""
    import subprocess

    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (label, loading) in enumerate(variants(Path(folder) / "disk").items()):
            path = out / back_end / str(number)
            words = ["run", str(SCENARIO), "--on", back_end, "--out", str(path), "--quiet"]
            for change in (*COMMON, f"training.loading={loading}"):
                words += ["--set", change]
            subprocess.run(command(*words), check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
            runs[label] = load_run(path)
    return runs


def table(runs: dict[str, Run]) -> pd.DataFrame:
    """One row per variant and round of the first worker: ``iteration_s, waited_s``, and samples by level."""
    import pandas as pd

    parts = []
    for label, run in runs.items():
        rounds = run.tables["rounds"]
        mine = rounds[rounds["node"] == rounds["node"].min()].sort_values("round").set_index("round")
        part = pd.DataFrame({"variant": label, "iteration_s": mine["t_s"] - mine["t0_s"]})
        loads = run.tables["loads"]
        loads = loads[loads["node"] == rounds["node"].min()].set_index("round")
        parts.append(part.join(loads[["waited_s", *LEVELS]] if len(loads) else loads[[]]).reset_index())
    return pd.concat(parts)


def draw(frame: pd.DataFrame, path: Path, epoch: float) -> None:
    """Iteration time by iteration; epochs of the first worker as vertical lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (label, rows) in enumerate(frame.groupby("variant", sort=False)):
        look = series(number)
        axes.plot(rows["round"] + 1, rows["iteration_s"], color=look.color, label=label, lw=1.3,
                  ls="--" if label == "all in memory" else "-")  # fmt: skip
    end = float(frame["round"].max()) + 1
    for number in range(1, int(0.99 * end / epoch) + 1):
        axes.axvline(number * epoch, color="#C9CDD2", lw=0.8, zorder=0)
        axes.annotate(f"epoch {number + 1}", (number * epoch, 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -10), textcoords="offset points", fontsize=8, color="#666666")  # fmt: skip
    axes.set(xlabel="iteration", ylabel="iteration time [s]", ylim=(0, None), xlim=(1, end))
    axes.legend(fontsize=8, loc="center right")
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--on", default="simulate", choices=("emulate", "simulate", "local"))
    chosen = parser.parse_args()
    runs = measure(chosen.out, chosen.on)
    digests = {run.result and run.result["parameters_sha256"] for run in runs.values()}
    assert len(digests) == 1, f"the cache has changed the training: {digests}"
    frame = table(runs)
    frame.to_csv(chosen.out / "data_cache.csv", index=False)
    first = frame[frame["variant"] == "cache, cold"]
    epoch = float(first["remote"].sum()) / 32
    draw(frame, chosen.out / "data_cache.png", epoch)
    late = frame["round"] >= 2 * epoch
    for when, rows in (("first epoch", frame[frame["round"] < epoch - 1]), ("third epoch and later", frame[late])):
        means = rows.groupby("variant", sort=False)["iteration_s"].mean()
        sys.stdout.write(f"{when}: " + ", ".join(f"{name} {mean:.3f} s" for name, mean in means.items()) + "\n")
    counts = frame.groupby("variant", sort=False)[list(LEVELS)].sum()
    sys.stdout.write(f"the same bits in all four\n{counts}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
