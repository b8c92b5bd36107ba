"""Where sharing the optimizer's work pays: milliseconds gained in every step, by the rate of the network.

    python -m analysis.experiments.shared_optimizer OUT

ResNet-50 (25.6 million parameters) and BERT-base (110 million) with LARS on eight workers of one data centre, whose
processors read and write 4 GB/s and verify messages at 1.8 GB/s; simulated, sizes only. ``norms``: each takes the
norms of its share. ``update``: each also updates its share, and all gather the new values. Lines are the cost
model's, markers what the engine took. The slowest network is a WAN: 20 Mbit/s and 45 ms. Writes
``shared_optimizer.csv`` and ``shared_optimizer.png``.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.experiments.virtual import run
from analysis.identity import series
from testbed.policy.collective.cost import LinkCost
from testbed.policy.collective.shares import saved_s
from testbed.simulation.compute import ComputeModel
from testbed.training.models.measuring import shape_of_model
from testbed.training.options.models import Declared

SCENARIO = """
version: 1
name: shared-optimizer
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: here, central: true, workers: 8}]
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training:
  model: {kind: declared, name: resnet50}
  data: none
  batch: 8
  rounds: 3
  evaluate_every: 1
  compute: modelled
device: {step_time: 1 s}
timeouts: {rendezvous: 2 h}
paradigm: {kind: allreduce, algorithm: ring}
optimizer: {kind: lars, learning_rate: 1.0}
"""
WORKERS = 8
LAST = 2
LANS = ((0.02, 45.0), (1.0, 0.1), (10.0, 0.1), (25.0, 0.05), (100.0, 0.02))  # Gbit/s, and ms one way
MODELS = ("resnet50", "bert-base")
KINDS = ("norms", "update")


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds gained in a step, negative where they are lost."""

    model: str
    work: str
    rate_gbps: float
    delay_ms: float
    predicted_s: float
    simulated_s: float


def step_s(model: str, work: str, rate_gbps: float, delay_ms: float) -> float:
    """How long the optimizer's part of the last round takes at the slowest worker, what it gathers included."""
    result = run(
        SCENARIO, f"training.model={{kind: declared, name: {model}}}", f"paradigm.optimizer_work={work}",
        f"topology.lan={{rate: {rate_gbps:g} Gbit/s, delay: {delay_ms:g} ms}}",
    )  # fmt: skip
    begun_s: dict[str, float] = {}
    for event in result.of("compute"):
        if event["work"] == "optimizer" and event["round"] == LAST:
            begun_s[event["node"]] = min(event["t0"], begun_s.get(event["node"], event["t0"]))
    last = [event for event in result.of("round") if event["round"] == LAST]
    return float(max(event["t"] - begun_s[event["node"]] for event in last))


def rows() -> list[Row]:
    """All of them."""
    found = []
    for model in MODELS:
        shape = shape_of_model("declared", asdict(Declared(name=model)), (), 0)
        sizes = [key for segment in shape.segments for key in segment.sizes]
        for rate, delay in LANS:
            alone_s = step_s(model, "everybody", rate, delay)
            link = LinkCost(delay / 1e3, max(8 / (rate * 1e9), 1 / ComputeModel().message_bytes_per_s))
            for work in KINDS:
                predicted = saved_s(sizes, WORKERS, work, link, ComputeModel().memory_bytes_per_s, norms=True)
                found.append(Row(model, work, rate, delay, predicted, alone_s - step_s(model, work, rate, delay)))
                sys.stdout.write(f"{found[-1]}\n")
    return found


def draw(found: list[Row], path: Path) -> None:
    """One panel a model; zero is where sharing changes nothing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.3), layout="constrained")
    panels = figure.subplots(1, len(MODELS), sharex=True)
    for axes, model in zip(panels, MODELS, strict=True):
        for number, work in enumerate(KINDS):
            mine = [row for row in found if (row.model, row.work) == (model, work)]
            look, rates = series(number), [row.rate_gbps for row in mine]
            axes.plot(rates, [row.predicted_s * 1e3 for row in mine], color=look.color, lw=1, label=f"{work}: model")
            axes.plot(rates, [row.simulated_s * 1e3 for row in mine], look.marker, color=look.color, mfc="none",
                      label=f"{work}: simulated")  # fmt: skip
        axes.axhline(0, color="#666666", lw=0.8)
        axes.set(xscale="log", title=model, xlabel="rate of the network [Gbit/s]")
        axes.set_yscale("symlog", linthresh=10)
        axes.margins(y=0.1)
        axes.axvspan(axes.get_xlim()[0], 0.1, color="#F3E3D7", zorder=0)
        axes.annotate("WAN", (0.02, 0.04), xycoords=("data", "axes fraction"), ha="center", fontsize=8)
    panels[0].set_ylabel("gained in a step [ms]")
    figure.legend(
        *panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4
    )
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    found = rows()
    with open(out / "shared_optimizer.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in found)
    draw(found, out / "shared_optimizer.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
