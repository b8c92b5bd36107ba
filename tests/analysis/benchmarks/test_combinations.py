"""Some random combinations; ``testbed bench combinations`` draws five hundred."""

from __future__ import annotations

import pytest

from analysis.benchmarks.combinations import draw, examine


@pytest.mark.sample(1)  # of 2, which take 3 s
@pytest.mark.parametrize("number", [0, 2])  # the cheap ones of ten: 0.4 to 1.2 s
def test_a_combination_is_refused_with_a_cure_or_trains(number: int) -> None:
    row = examine(draw(1, number))
    assert row["ok"], row
