"""Where sharing the optimizer's work pays: milliseconds gained in every step, by the rate of the network.

ResNet-50 (25.6 million parameters) and BERT-base (110 million) with LARS on eight workers of one data centre, whose
steps take what the table of costs says; simulated, sizes only. ``norms``: each takes the
norms of its share. ``update``: each also updates its share, and all gather the new values. Lines are the cost
model's, markers what the engine took. The slowest network is a WAN: 20 Mbit/s and 45 ms.
"""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
from matplotlib.axes import Axes

from analysis.identity import series
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep, against
from testbed.compute_model import ComputeModel
from testbed.costs import reference_costs
from testbed.policy.collective.predict import LinkCost
from testbed.policy.collective.shares import NORM_READS, UPDATE_READS, VALUE_BYTES, saved_s
from testbed.training.models import shape_of_model
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
WORKERS, LAST_ROUND = 8, 2
LARS = "lars with momentum step"  # its row in the table of costs
NETWORKS = {f"{{rate: {rate:g} Gbit/s, delay: {delay:g} ms}}": (rate, delay) for rate, delay in
            ((0.02, 45.0), (1.0, 0.1), (10.0, 0.1), (25.0, 0.05), (100.0, 0.02))}  # fmt: skip
MODEL, LAN = "training.model.name", "topology.lan"
WORK = {"alone": "replicated", "norms": "norms", "update": "update"}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    variants = {name: {"paradigm.optimizer_work": work} for name, work in WORK.items()}
    models = ("resnet50",) if quick else ("resnet50", "bert-base")
    return (StudySweep("work", variants, {MODEL: models, LAN: tuple(NETWORKS)}),)


def optimizer_s(each: StudyRun) -> float:
    """How long the optimizer's part of the last round takes at the slowest worker, what it gathers included."""
    computes, rounds = each.run.tables["computes"], each.run.tables["rounds"]
    mine = computes[(computes["work"] == "optimizer") & (computes["round"] == LAST_ROUND)]
    ends = rounds[rounds["round"] == LAST_ROUND].set_index("node")["t_s"]
    return float((ends - mine.groupby("node")["t0_s"].min()).max())


def predicted_s(row: dict[str, object]) -> float | None:
    """Return the seconds that the cost model says are saved."""
    if row["variant"] == "alone":
        return None
    rate, delay = NETWORKS[str(row[LAN])]
    shape = shape_of_model("declared", asdict(Declared(name=str(row[MODEL]))), (), 0)
    sizes = [key for segment in shape.segments for key in segment.sizes]
    link = LinkCost(delay / 1e3, max(8 / (rate * 1e9), 1 / ComputeModel().message_bytes_per_s))
    step_bytes_per_s = VALUE_BYTES * (UPDATE_READS + NORM_READS) / reference_costs()[LARS].element_s
    return saved_s(sizes, WORKERS, str(row["variant"]), link, step_bytes_per_s, norms=True)


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    alone_s = against(runs, "optimizer_s", [MODEL, LAN], variant="alone")
    return runs.assign(rate_gbps=[NETWORKS[lan][0] for lan in runs[LAN]], simulated_s=alone_s - runs["optimizer_s"],
                       predicted_s=[predicted_s(row) for row in runs.to_dict("records")])  # fmt: skip


def _wan(axes: Axes, found: Results) -> None:
    axes.axhline(0, color="#666666", lw=0.8)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)
    axes.axvspan(axes.get_xlim()[0], 0.1, color="#F3E3D7", zorder=0)
    axes.annotate("WAN", (0.02, 0.04), xycoords=("data", "axes fraction"), ha="center", fontsize=8)


def _panel(model: str) -> Panel:
    return Panel(model, "1000 * simulated_s", "rate_gbps", kind="points", where={MODEL: model}, draw=_wan,
                 only=("norms", "update"), model="1000 * predicted_s", x_label="rate of the network (Gbit/s)",
                 y_label="gained in a step (ms)")  # fmt: skip


STUDY = Study(
    title="Where sharing the optimizer's work pays", source="testbed.policy.collective.shares", scenario=SCENARIO,
    sweeps=sweeps, columns={"optimizer_s": optimizer_s}, derive=derive,
    looks={"norms": series(0, "norms (lines: model)"), "update": series(1, "update (lines: model)")},
    panels=(_panel("resnet50"), _panel("bert-base")), size_in=(7.5, 3.3),
)  # fmt: skip
