"""Rounds of a pipeline count once for each replica, from the first stage's begin to the last one's end."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from testbed.results.pipelines import rounds_of_replicas
from testbed.results.summary import covered_round_time_s, samples_per_s, step_time_s

STAGES = {"a/worker0": 0, "b/worker0": 1, "a/worker1": 0, "b/worker1": 1}
PLAN: dict[str, Any] = {"nodes": [{"name": name, "role": "worker", "stage": stage} for name, stage in STAGES.items()]}
BATCH = 8
NO_FAULTS = pd.DataFrame(columns=["kind", "t_s", "targets", "begins", "message"])


def table(*spans: tuple[str, int, float, float]) -> pd.DataFrame:
    """Return rounds of workers; the last stage counts the samples."""
    rows = [(*span, 1, BATCH if STAGES.get(span[0], 1) else 0) for span in spans]
    return pd.DataFrame(rows, columns=["node", "round", "t0_s", "t_s", "steps", "samples"])


def test_a_replica_has_the_samples_once_and_the_time_of_all_its_stages() -> None:
    rounds = table(
        *(("a/worker0", 0, 0.0, 10.0), ("a/worker0", 1, 10.0, 20.0)),
        *(("b/worker0", 0, 0.0, 7.0), ("b/worker0", 1, 7.0, 17.0)),  # the last stage is done first
        *(("a/worker1", 0, 0.0, 20.0), ("a/worker1", 1, 20.0, 40.0)),
        *(("b/worker1", 0, 0.0, 15.0), ("b/worker1", 1, 15.0, 30.0)),
    )
    made = rounds_of_replicas(rounds, PLAN)
    assert made.groupby("node")["samples"].sum().to_dict() == {"a/worker0": 2 * BATCH, "a/worker1": 2 * BATCH}
    assert covered_round_time_s(made) == pytest.approx((10 + 20) / 2)
    assert step_time_s(made) == pytest.approx((10 + 20) / 2)
    assert samples_per_s(made, NO_FAULTS) == pytest.approx(BATCH / 10 + BATCH / 20)


def test_what_a_restart_repeats_counts_as_of_one_worker() -> None:
    rounds = table(
        *(("a/worker0", 0, 0.0, 10.0), ("a/worker0", 1, 50.0, 60.0)),
        *(("b/worker0", 0, 0.0, 7.0), ("b/worker0", 1, 7.0, 17.0), ("b/worker0", 1, 50.0, 57.0)),
    )
    one = {"nodes": PLAN["nodes"][:2]}
    made = rounds_of_replicas(rounds, one)
    assert made[["round", "t0_s", "t_s"]].to_numpy().tolist() == [[0, 0.0, 10.0], [1, 50.0, 60.0]]


def test_a_run_without_stages_keeps_its_rounds() -> None:
    rounds = table(("c/worker0", 0, 0.0, 1.0))
    assert rounds_of_replicas(rounds, {"nodes": [{"name": "c/worker0", "role": "worker"}]}) is rounds
