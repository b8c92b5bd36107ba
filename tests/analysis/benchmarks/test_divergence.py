"""The rule of divergence on whole trainings: some by default, more of the benchmark's when slow tests run."""

from __future__ import annotations

import random

import pytest

from analysis.benchmarks.divergence import TrainingCase, cases, classify

CASES = cases()
QUICK = ("quickstart optimizer={kind: sgd, learning_rate: 100}", "sync/fsa training.rounds=12")


def test_there_are_enough_of_both_kinds() -> None:
    assert sum(case.diverges for case in CASES) >= 10
    assert sum(not case.diverges for case in CASES) >= 60  # some shipped ones have no losses
    assert {case.name for case in CASES} >= set(QUICK)


@pytest.mark.sample(1)  # of 2, which take 5 s
@pytest.mark.parametrize("case", [case for case in CASES if case.name in QUICK], ids=lambda case: case.name)
def test_a_training_is_called_what_it_is(case: TrainingCase) -> None:
    row = classify(case, rounds=30)
    assert row is not None and row["ok"], row


@pytest.mark.slow  # 1 to 30 s each, 4 s in the mean; all of them: testbed bench divergence
@pytest.mark.parametrize("case", random.Random(1).sample(CASES, 12), ids=lambda case: case.name)
def test_more_trainings_are_called_what_they_are(case: TrainingCase) -> None:
    row = classify(case, rounds=120)
    assert row is None or row["ok"], row
