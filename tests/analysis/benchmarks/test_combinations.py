"""Some random combinations; ``testbed bench combinations`` draws five hundred."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.benchmarks.combinations import draw, examine


@pytest.mark.sample(1)  # of 2, which take 3 s
@pytest.mark.parametrize("number", [0, 2])  # the cheap ones of ten: 0.4 to 1.2 s
def test_a_combination_is_refused_with_a_cure_or_trains(number: int) -> None:
    row = examine(draw(1, number))
    assert row["ok"], row


@pytest.mark.slow  # 30 s: real processes on loopback
@pytest.mark.parametrize("number", [2, 6])
def test_on_loopback(number: int) -> None:
    row = examine(draw(1, number), "local")
    assert row["ok"] and row["ended"] == "trained", row


def test_a_combination_that_does_not_learn_is_found() -> None:
    case = draw(1, 2)
    slow = replace(case, settings=(*case.settings, "optimizer.learning_rate=0.000001"))
    assert "not above chance" in examine(slow)["wrong"]
