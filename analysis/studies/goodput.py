"""Goodput over the rate of failures: Decoupled DiLoCo compared with data parallelism that continues without lost nodes.

Sixteen learners on fast links make steps of one second. Only sizes and times are computed, as learning does not matter
here. Each learner fails once per period, at a random time: it is silent for ``REACTION_S``, until the others notice,
and ``RESTART_S`` later a new process replaces it, with the newest values. Goodput is the time spent on steps that went
into the model, as a share of the time of all learners.

With data parallelism, all learners wait until a failure is noticed; with n learners and a period P, the goodput is
about (1 − reaction/P)^n (1 − (reaction + restart)/P). The goodput of Decoupled DiLoCo is the second factor, less the
steps that the lost learner had not sent. The paper's hardware, failures and recovery times are not published, so the
study checks that the curves pass the two published values, but not at which failure rate.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pandas as pd

from analysis.identity import Identity
from analysis.studies.claims import Claims, decided, exactly, unresolved
from analysis.studies.results import Results
from analysis.studies.study import Case, Panel, Settings, Study, StudyRun

LEARNERS = 16
STEPS = 300
REACTION_S = 20
RESTART_S = 10
PERIODS_S = (10_000, 2_000, 1_000, 600, 400, 285, 200, 140, 100)
ELASTIC = "elastic data parallelism"
DECOUPLED = "Decoupled DiLoCo"
REPORTED = {DECOUPLED: 88.0, ELASTIC: 27.0}  # published goodput (%)
SCHEDULES = (1, 2, 3)  # seeds of the times of failures
_LONGEST_S = 60 * STEPS
_P = 4  # number of fragments
_H = 16
_MERGED = "quorum: 1, adaptive: true, weights: token"
_LONGER = 4  # Decoupled DiLoCo loses less time, so it makes this many times the steps: each learner fails several times

SCENARIO = f"""
version: 1
name: goodput
seed: 1
run: {{on: simulate}}
topology:
  generator: {{kind: star, data_centers: {LEARNERS}, workers: 1, rate: 100 Gbit/s, delay: 10 ms}}
  lan: {{rate: 400 Gbit/s}}
training:
  {{model: {{kind: mlp, hidden: 8}}, data: digits, batch: 32, compute: modelled, rounds: {STEPS},
    evaluate_every: {STEPS}}}
simulation: {{network: flows}}
device: {{step_time: 1 s}}
paradigm: ps
optimizer: sgd
recovery: {{on_failure: continue}}
timeouts: {{dead_after: {2 * REACTION_S} s, step_deadline: 10 h, run_deadline: 240 h}}
"""


def failures(period_s: int, schedule: int) -> str:
    """Return the setting ``faults``: each learner fails once per period, at a time drawn with the seed ``schedule``."""
    chance = random.Random(schedule)
    times = max(2, _LONGEST_S // period_s)
    entries = []
    for number in range(LEARNERS):
        at_s = 5 + chance.random() * (period_s - REACTION_S - RESTART_S)
        again = f"every: {period_s} s, times: {times}"
        node = f"node: dc{number}/worker0"
        entries += [
            f"{{kind: pause, {node}, at: {at_s:.2f} s, for: {REACTION_S + 1} s, {again}}}",
            f"{{kind: kill, {node}, at: {at_s + REACTION_S:.2f} s, for: {RESTART_S} s, {again}}}",
        ]
    return f"[{', '.join(entries)}]"


VARIANTS: dict[str, Settings] = {
    ELASTIC: {"sync": "fsa"},
    DECOUPLED: {
        "sync": f"{{kind: decoupled, h: {_H}, fragments: {_P}, overlap_steps: 2, {_MERGED}}}",
        "training.rounds": f"{_LONGER * STEPS * _P // _H}",
        "training.evaluate_every": f"{_LONGER * STEPS * _P // _H}",
    },
}


def goodput(each: StudyRun) -> float:
    """Return the percentage of the learners' time that was spent on steps that went into the model."""
    rounds = each.run.tables["rounds"]
    lasted_s = rounds["t_s"].max() - rounds["t0_s"].min()
    return float(100 * rounds["steps"].sum() / (LEARNERS * lasted_s))


def per_hour(each: StudyRun) -> float:
    """Return how often a learner fails per hour."""
    return 3600 / float(each.sweep.split()[1])


def claims(found: Results) -> Claims:
    table = found.runs.pivot_table(index="per_hour", columns="variant", values="goodput").sort_index()
    if set(table) != {ELASTIC, DECOUPLED} or table[ELASTIC].min() > REPORTED[ELASTIC]:
        yield unresolved("what one has where the other has its reported goodput", "the curve does not come so far")
        return
    at = {name: _passes(table[name], percent) for name, percent in REPORTED.items()}
    there = float(np.interp(math.log(at[ELASTIC]), np.log(table.index), table[DECOUPLED]))
    yield exactly(f"where {ELASTIC} has 27 %, {DECOUPLED} has at least 88 %", there, REPORTED[DECOUPLED], unit=" %")
    yield decided(
        f"the curves pass 27 % and 88 %: {ELASTIC}, {DECOUPLED}",
        f"at {at[ELASTIC]:.3g} and {at[DECOUPLED]:.3g} failures of a learner an hour",
        all(math.isfinite(each) for each in at.values()),
    )


def _passes(curve: pd.Series[float], percent: float) -> float:
    """Return the failure rate at which a falling curve has the value ``percent``; NaN if it does not pass the value."""
    falling = curve.sort_values()
    if not falling.iloc[0] <= percent <= falling.iloc[-1]:
        return math.nan
    return math.exp(float(np.interp(percent, falling, np.log(falling.index.to_numpy(float)))))


STUDY = Study(
    title="Goodput over failures",
    source="Douillard et al. 2026 (arXiv 2604.21428)",
    scenario=SCENARIO,
    variants=VARIANTS,
    cases={
        f"every {period_s} s, schedule {schedule}": Case({"faults": failures(period_s, schedule)}, seeds=1)
        for period_s in PERIODS_S
        for schedule in SCHEDULES
    },
    claims=claims,
    columns={"goodput": goodput, "per_hour": per_hour},
    panels=(
        Panel(
            "Goodput",
            "goodput",
            "per_hour",
            log="x",
            x_label="failures of a learner an hour",
            y_label="goodput (%)",
            y_range=(0, 100),
            levels={88.0: "88 %", 27.0: "27 %"},
        ),
    ),
    looks={ELASTIC: Identity(ELASTIC, "#000000", "h"), DECOUPLED: Identity(DECOUPLED, "#D55E00", "s")},
    size_in=(6.5, 3.8),
)
