"""A data centre, or a single worker, ten times slower: time to the same accuracy, throughput, shares of computing.

Three data centres of two workers, 20 Mbit/s and 45 and 84 ms between them; the demo CNN on digits, in virtual time with
real mathematics.
"""

from __future__ import annotations

import pandas as pd

from analysis.identity import look_of
from analysis.studies.claims import Claims, in_order
from analysis.studies.columns import accuracy, ratio_spread
from analysis.studies.study import Panel, Results, Study, StudySweep, against

SCENARIO = """
version: 1
name: stragglers
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: virginia, central: true, workers: 2}
    - {name: frankfurt, workers: 2}
    - {name: tokyo, workers: 2}
  links:
    - {between: [virginia, frankfurt], rate: 20 Mbit/s, delay: 45 ms}
    - {between: [virginia, tokyo], rate: 20 Mbit/s, delay: 84 ms}
training: {model: cnn, data: digits, batch: 32, rounds: 2000, target_accuracy: 90 %, evaluate_every: 10}
device: {step_time: 200 ms}
"""
SLOW = {
    "none": {},
    "one data centre": {"data_centers[tokyo].device": "{speed: 0.1}"},
    "one worker": {"data_centers[frankfurt].worker_devices": "{worker1: {speed: 0.1}}"},
}
_ADAM, _LOCAL = (f"{{kind: adam, learning_rate: 0.002, at: {place}}}" for place in ("global", "worker"))
_SGD, _DC = (f"{{kind: {kind}, learning_rate: 0.05}}" for kind in ("sgd", "dcasgd"))
ALGORITHMS = {
    "FSA": {"sync": "fsa", "optimizer": _ADAM},
    "MixedSync": {"sync": "mixedsync", "optimizer": _DC},
    "ESync": {"sync": "esync", "optimizer": _LOCAL, "training.evaluate_every": "1"},
    "SSGD": {"paradigm": "ps", "sync": "bsp", "optimizer": _ADAM},
    "ASGD": {"paradigm": "ps", "sync": "tap", "optimizer": _SGD},
    "DC-ASGD": {"paradigm": "ps", "sync": "tap", "optimizer": _DC},
}
_KINDS = ("fsa", "mixedsync", "esync", "bsp", "tap", "dcasgd")


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    return tuple(
        StudySweep(name, {label: {**slower, **each} for label, each in ALGORITHMS.items()})
        for name, slower in SLOW.items() if not quick or slower
    )  # fmt: skip


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    base = against(runs, "time_to_target_s", ["sweep"], variant="FSA")
    return runs.assign(against_fsa=base / runs["time_to_target_s"])


def claims(found: Results) -> Claims:
    order = ("ESync", "ASGD", "DC-ASGD", "SSGD")
    values = {name: found.mean("throughput", sweep="one worker", variant=name) for name in order}
    yield in_order("one worker 10 times slower: throughput ESync > ASGD >= DC-ASGD > SSGD", values, 0.01)


STUDY = Study(
    title="One straggler", source="Li et al., ESync, IEEE TSC 2022", scenario=SCENARIO, sweeps=sweeps, derive=derive,
    claims=claims, curves=accuracy, columns={"spread": ratio_spread},
    looks={name: look_of(kind, name) for name, kind in zip(ALGORITHMS, _KINDS, strict=True)},
    panels=(
        *(Panel(f"10 times slower: {name}", kind="curve", where={"sweep": name}, log="x")
          for name in SLOW),
        Panel("Throughput until the target", "throughput", "sweep", kind="bar", y_label="samples/s"),
        Panel("Time to 90 %", "time_to_target_s", "sweep", kind="bar", y_label="s"),
        Panel("Largest difference of computing shares", "spread", "sweep", kind="bar", y_label="share of time"),
    ),
    rows=2, size_in=(11, 6),
)  # fmt: skip
