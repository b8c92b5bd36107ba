"""Any schedule of arrivals ends: whoever waits is freed, whatever the speeds, however early the target is reached."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.training.learner import Score
from tests.engine.runs import Simulated
from tests.engine.runs import run as simulated
from tests.engine.sync.constant import ConstantLearner, use_constants
from tests.for_each import for_each

ROUNDS = 7
PAIRS = [
    ("ps", "{kind: ssp, staleness: %d}"),
    ("hips", "{kind: ssp, staleness: %d}"),
    ("hips", "{tier1: fsa, tier2: {kind: ssp, staleness: %d}}"),
    ("hips", "{tier1: tap, tier2: {kind: ssp, staleness: %d}}"),
    ("hips", "{tier1: {kind: ssp, staleness: %d}, tier2: tap}"),
]
WORKERS = st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3))
SPEEDS = st.tuples(*[st.sampled_from([0.1, 0.5, 1.0])] * 3)


def go(folder: pytest.TempPathFactory, *overrides: str) -> Simulated:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstantLearner, "evaluate", lambda self, values: Score(1.0, 0.0))
        use_constants(patch, lambda rank, values: 2.0**-rank)
        sgd = "optimizer={kind: sgd, learning_rate: 1}"
        return simulated(folder.mktemp("run"), sgd, f"training.rounds={ROUNDS}", *overrides)


def rounds(run: Simulated) -> Counter[str]:
    return Counter(event["node"] for event in run.of_kind("round"))


@pytest.mark.sample(1)  # of 5, which take 5 s
@pytest.mark.parametrize(("paradigm", "sync"), PAIRS)
@given(workers=WORKERS, speeds=SPEEDS, bound=st.integers(0, 3), seed=st.integers(0, 10**6), early=st.booleans())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bounded_staleness_always_ends(
    paradigm: str,
    sync: str,
    workers: tuple[int, ...],
    speeds: tuple[float, ...],
    bound: int,
    seed: int,
    early: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Unequal numbers of workers, unequal speeds, the evaluator fast or slow; a reached target ends everybody."""
    sites = [f"data_centers[{number}].workers={count}" for number, count in enumerate(workers)]
    devices = [f"data_centers[{number}].device.speed={speed}" for number, speed in enumerate(speeds)]
    goal = ("training.target_accuracy=50 %", "training.evaluate_every=2") if early else ()
    run = go(
        tmp_path_factory,
        f"paradigm={paradigm}",
        f"sync={sync % bound}",
        f"seed={seed}",
        *sites,
        *devices,
        *goal,
        "device.variation=60 %",
    )
    done = rounds(run)
    assert len(done) == sum(workers)
    made, scored = done.total(), [event["round"] for event in run.of_kind("evaluate")]
    whole_sites = max(workers) // 2 if "fsa" in sync else 0  # a data centre makes its workers' rounds together
    if not early:
        assert abs(made - ROUNDS * sum(workers)) <= whole_sites
    else:
        # reached after rounds 1 and 3, known at round 5, with the last rounds begun
        assert scored[:2] == [1, 3]
    assert scored[-1] == min(math.ceil(made / sum(workers)), ROUNDS) - 1


@for_each("k2", [1, 2, 3])
def test_a_target_reached_inside_a_data_centre_ends_all_at_the_next_round_across(
    k2: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = go(
        tmp_path_factory,
        f"sync={{kind: hfa, k1: 1, k2: {k2}}}",
        "training.target_accuracy=50 %",
        "optimizer={kind: sgd, learning_rate: 1, at: worker}",
        "training.evaluate_every=1",
    )
    assert set(rounds(run).values()) == {-(-3 // k2) * k2}  # scored after rounds 0 and 1, known at round 2
