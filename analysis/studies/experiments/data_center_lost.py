"""A data centre is cut off for a minute and comes back: accuracy over time, of those that wait and those that do not.

Three data centres of two workers, the demo's CNN on real digits. At 15 s all links of one are down, for 60 s, and no
node is declared dead (FSA, MixedSync, HFA, gossip). "FSA, continue": its processes are killed instead, the others
continue without it, and it comes back after the same minute. TCP notices a link that is up again when its next
retransmission is due, at doubled intervals: up to as long again after the minute, in both worlds.
"""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.identity import Identity, look_of
from analysis.metrics import accuracy_curve
from analysis.studies.columns import Column, accuracy
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep

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
_LOCAL = {"optimizer": "{kind: adam, learning_rate: 0.001, at: worker}"}
VARIANTS: dict[str, dict[str, str]] = {
    "FSA": {},
    "FSA, continue": {"faults": "[{kind: kill, data_center: tokyo, at: 15 s, for: 60 s}]",
                      "recovery": "{on_failure: continue}", "timeouts": "{dead_after: 10 s}"},
    "MixedSync": {"sync": "mixedsync", "training.rounds": "260"},
    "HFA": {**_LOCAL, "sync": "{kind: hfa, k1: 5, k2: 2}", "training.rounds": "40", "training.evaluate_every": "1"},
    "AD-PSGD (gossip)": {**_LOCAL, "paradigm": "{kind: gossip, algorithm: adpsgd, graph: ring}",
                         "training.rounds": "200"},
}  # fmt: skip


def _accuracy_at(moment_s: float) -> Column:
    """Return the last accuracy known at a moment; 0 before the first evaluation."""

    def of(each: StudyRun) -> float:
        curve = accuracy_curve(each.run)
        known = curve.loc[curve["time_s"] <= moment_s, "accuracy"]
        return float(known.iloc[-1]) if len(known) else 0.0

    return of


def _minute(axes: Axes, found: Results) -> None:
    axes.axvspan(LOST_S, BACK_S, color="#000000", alpha=0.07, linewidth=0)
    axes.annotate("one of three data centres is lost", ((LOST_S + BACK_S) / 2, 0.02), ha="center",
                  xycoords=("data", "axes fraction"), fontsize=7.5, annotation_clip=True)  # fmt: skip


STUDY = Study(
    title="A data centre lost for a minute", source="own", scenario=SCENARIO, curves=accuracy,
    sweeps=lambda quick: (StudySweep("lost", VARIANTS),),
    columns={"before": _accuracy_at(LOST_S), "at_return": _accuracy_at(BACK_S)},
    looks={"FSA": look_of("fsa"), "FSA, continue": Identity("FSA, continue", "#56B4E9", "X"),
           "MixedSync": look_of("mixedsync"), "HFA": look_of("hfa"), "AD-PSGD (gossip)": look_of("gossip")},
    panels=(Panel("Lines: simulated, marks: emulated", kind="curve", draw=_minute),),
    size_in=(7.4, 4.0),
)  # fmt: skip
