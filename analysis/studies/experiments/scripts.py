"""The ordinary PyTorch script of ``scenarios/scripts`` against the built-in workload: final accuracy over seeds.

The same data centres, workers, digits, batch, number of steps, algorithm (FSA) and optimizer (Adam on every worker, on
the mean of all gradients); the script brings its own small network, the built-in workload is the demo CNN.
"""

from __future__ import annotations

from analysis.studies.claims import Claims, between
from analysis.studies.study import Panel, Results, Study, StudySweep

WORKLOADS = {
    "script": {},
    "built-in": {"workload": "null",
                 "training": "{model: cnn, data: digits, batch: 32, rounds: 120, evaluate_every: 20}",
                 "optimizer": "{kind: adam, learning_rate: 0.002, at: worker}"},
}  # fmt: skip


def claims(found: Results) -> Claims:
    values = found.differences("accuracy", "script", "built-in")
    yield between("the script's accuracy is within 2 points of the built-in workload's", values, -0.02, 0.02)


STUDY = Study(
    title="An ordinary script against the built-in workload", source="scenarios/scripts",
    scenario="scripts/plain_pytorch.yaml", claims=claims,
    sweeps=lambda quick: (StudySweep("workloads", WORKLOADS, seeds=2 if quick else 5),),
    panels=(Panel("Final accuracy", "100 * accuracy", kind="bar", y_label="test accuracy (%)"),),
    size_in=(4.0, 3.2),
)  # fmt: skip
