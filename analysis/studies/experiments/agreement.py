"""Accuracy over the number of updates, emulated and simulated with real mathematics, where the bits need not be equal.

MixedSync, HFA, ESync, Bi-Sparse and DGT with loss, on data centres of one worker around one that only serves; the
demo's CNN on real digits. What arrives when, and what is lost, differs between worlds where it decides (MixedSync,
DGT), so these train until they have converged; HFA and Bi-Sparse must agree to the bit.
"""

from __future__ import annotations

from analysis.identity import look_of
from analysis.studies.claims import Claims, decided
from analysis.studies.columns import accuracy
from analysis.studies.study import Panel, Results, Study, StudySweep
from analysis.studies.worlds import accuracies, same_bits

SCENARIO = """
version: 1
name: agreement
seed: 1
topology:
  data_centers:
    - {name: central, central: true, workers: 0}
    - {name: site0, workers: 1}
    - {name: site1, workers: 1}
    - {name: site2, workers: 1}
    - {name: site3, workers: 1}
  links:
    - {between: [central, site0], rate: 20 Mbit/s, delay: 15 ms}
    - {between: [central, site1], rate: 20 Mbit/s, delay: 30 ms}
    - {between: [central, site2], rate: 20 Mbit/s, delay: 45 ms}
    - {between: [central, site3], rate: 20 Mbit/s, delay: 60 ms}
training: {model: cnn, data: digits, split: iid, batch: 32, rounds: 150, evaluate_every: 10}
device: {pace: paced, step_time: 100 ms, variation: 10 %}
optimizer: {kind: adam, learning_rate: 0.002}
"""
_ADAM = {"optimizer": "{kind: adam, learning_rate: 0.003, at: worker}"}
_LONG = {"training.rounds": "300", "training.evaluate_every": "20"}  # until accuracy grows no more
VARIANTS: dict[str, dict[str, str]] = {
    "mixedsync": {"sync": "mixedsync", "optimizer": "{kind: adam, learning_rate: 0.0003}", **_LONG},
    "hfa": {"sync": "{kind: hfa, k1: 4, k2: 2}", **_ADAM, "training.rounds": "30", "training.evaluate_every": "2"},
    "esync": {"sync": "esync", **_ADAM, "training.rounds": "50", "training.evaluate_every": "4"},
    "bisparse": {
        "codec": "{tier1: none, tier2: {kind: bisparse, ratio: 0.05, bound: 1000, pull: sparse-sum}}",
        **_ADAM,
    },
    "dgt": {"order": "{kind: dgt, k: 0.5}", "topology.links[*].loss": "0.3 %", **_LONG},
}


def claims(found: Results) -> Claims:
    yield from (same_bits(found, name) for name in ("hfa", "bisparse"))
    yield from accuracies(found, VARIANTS)
    table = found.curves.pivot_table(index=["variant", "seed", "at_round"], columns="back_end", values="at_accuracy")
    if {"emulate", "simulate"} <= set(table.columns):
        largest = (table["emulate"] - table["simulate"]).abs().groupby("variant").max()
        measured = ", ".join(f"{name} {100 * value:.1f}" for name, value in largest.items())
        yield decided("the largest difference on the way is stated (points)", measured, True)


STUDY = Study(
    title="Accuracy over updates, emulated and simulated", source="own", scenario=SCENARIO, claims=claims,
    sweeps=lambda quick: (StudySweep("runs", VARIANTS),), on=("simulate", "emulate"), curves=accuracy,
    looks={name: look_of(name) for name in VARIANTS},
    panels=tuple(Panel(look_of(name).label, x="at_round", kind="curve", where={"variant": name}, x_label="round")
                 for name in VARIANTS),
    rows=2, size_in=(7.4, 4.4),
)  # fmt: skip
