"""What a gradient's age costs: DC-ASGD against plain asynchronous SGD at 0, 2, 4, 8 and 16 updates of delay.

tau + 1 equal workers of one data centre take turns, so every gradient is tau updates old (Zheng et al., ICML 2017:
error against delay). The number of updates, and so of samples, is the same everywhere.
"""

from __future__ import annotations

from analysis.identity import look_of
from analysis.studies.columns import final_loss
from analysis.studies.study import Panel, Study, StudyRun, StudySweep

SCENARIO = """
version: 1
name: staleness
seed: 1
run: {on: simulate}
paradigm: ps
sync: tap
topology:
  data_centers: [{name: hub, central: true, workers: 1}]
training: {model: {kind: mlp, hidden: 32}, data: digits, batch: 32, rounds: 1, evaluate_every: 1}
device: {step_time: 100 ms, variation: 2 %}
"""
UPDATES = 510
OPTIMIZERS = {"ASGD": "kind: sgd", "DC-ASGD": "kind: dcasgd, compensation: 2"}


def _settings(optimizer: str, delay: int) -> dict[str, str]:
    rounds = str(UPDATES // (delay + 1))
    return {"data_centers[hub].workers": str(delay + 1), "training.rounds": rounds, "training.evaluate_every": rounds,
            "optimizer": f"{{{optimizer}, learning_rate: 0.2}}"}  # fmt: skip


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    return tuple(
        StudySweep(f"delay {delay}", {name: _settings(each, delay) for name, each in OPTIMIZERS.items()},
                   seeds=2 if quick else 5)
        for delay in ((0, 4) if quick else (0, 2, 4, 8, 16))
    )  # fmt: skip


def seen(each: StudyRun) -> float:
    """Return the mean staleness of the updates of one key."""
    updates = each.run.tables["updates"]
    return float(updates.loc[updates["key"] == 0, "staleness"].mean())


STUDY = Study(
    title="What a gradient's age costs", source="Zheng et al., ICML 2017 (DC-ASGD)", scenario=SCENARIO, sweeps=sweeps,
    columns={"delay": lambda each: int(each.sweep.split()[1]), "seen": seen, "loss": final_loss},
    looks={"ASGD": look_of("tap", "ASGD"), "DC-ASGD": look_of("dcasgd")},
    panels=tuple(Panel("", name, "delay", x_label="delay of every gradient (updates)", y_label=f"test {name}")
                 for name in ("accuracy", "loss")),
    size_in=(7.4, 3.1),
)  # fmt: skip
