"""Learning rates as functions of the number of updates."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.training.optimizers import rate_at
from testbed.training.options.optimizers import SCHEDULES, Sgd


def rates(count: int, **options: Any) -> list[float]:
    return [rate_at(Sgd(learning_rate=1.0, **options), update) for update in range(count)]


def test_warmup_rises_to_the_full_rate_and_stays() -> None:
    assert rates(6, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_step() -> None:
    assert rates(7, schedule="step", period=2, decay=0.5, warmup=1) == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_cosine() -> None:
    expected = [
        1,
        0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2,
        0.6,
        0.2 + 0.8 * (1 - math.cos(math.pi / 4)) / 2,
        0.2,
        0.2,
    ]
    assert rates(6, schedule="cosine", period=4, decay=0.2) == pytest.approx(expected)


def test_inverse_sqrt() -> None:
    assert rates(9, schedule="inverse_sqrt") == pytest.approx([1 / math.sqrt(done) for done in range(1, 10)])
    assert rates(16, schedule="inverse_sqrt", warmup=4)[3:] == pytest.approx(
        [math.sqrt(4 / done) for done in range(4, 17)]
    )


@given(
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.integers(0, 50),
    period=st.integers(1, 50),
    decay=st.floats(0, 1),
    update=st.integers(0, 200),
)
def test_rates_stay_within_bounds_and_only_fall_after_warmup(
    schedule: str, warmup: int, period: int, decay: float, update: int
) -> None:
    options = Sgd(learning_rate=0.3, schedule=schedule, warmup=warmup, period=period, decay=decay)
    now, later = rate_at(options, update), rate_at(options, update + 1)
    assert 0 <= now <= 0.3 * (1 + 1e-12)
    if update >= warmup:
        assert later <= now * (1 + 1e-12)
