"""The slowest stretch of a trace, by which deadlines go."""

from __future__ import annotations

import math
from itertools import islice, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.plan.model import Series
from testbed.plan.timeouts import slowest_mean
from tests.for_each import for_each


@for_each(
    ("series", "window", "slowest"),
    [
        (Series(times_s=(0.0, 5.0), values=(20.0, 1.0)), 30.0, 1.0),  # it stays
        (Series(times_s=(0.0, 9.0), values=(10.0, 0.0), period_s=10.0), 30.0, 9.0),  # an outage of 1 s in 10
        (Series(times_s=(0.0, 9.0), values=(10.0, 0.0), period_s=10.0), 4.0, 7.5),
        (Series(times_s=(0.0, 100.0), values=(10.0, 2.0), period_s=200.0), 30.0, 2.0),
        (Series(times_s=(0.0, 1.0), values=(0.0, 10.0), period_s=5.0), 2.0, 5.0),  # across the seam: 8.0 is not least
        (Series(times_s=(0.0,), values=(7.0,)), 30.0, 7.0),
    ],
)
def test_worked_out(series: Series, window: float, slowest: float) -> None:
    assert slowest_mean(series, window) == pytest.approx(slowest)


@for_each("after_s", [0.0, 0.5, 1.0, 3.9, 4.0, 5.5, 6.0, 1e6 + 0.1 * 3])
def test_segments_from_anywhere_are_those_from_the_beginning(after_s: float) -> None:
    """What repeats begins within a segment."""
    series = Series(times_s=(0.0, 1.0, 3.0), values=(7.0, 8.0, 9.0), period_s=2.0, repeats_from_s=2.0)
    assert list(islice(series.segments(), 6)) == [
        (0.0, 1.0, 7.0), (1.0, 3.0, 8.0), (3.0, 4.0, 9.0), (4.0, 5.0, 8.0), (5.0, 6.0, 9.0), (6.0, 7.0, 8.0),
    ]  # fmt: skip
    begin_s, end_s, value = next(series.segments(after_s))
    assert begin_s <= after_s < end_s
    assert value == (7.0 if after_s < 1 else 8.0 if after_s < 3 or after_s % 2 < 1 else 9.0)


@given(st.floats(0.001, 10), st.integers(0, 10**6))
@example(8.837638681061978, 29)
def test_where_a_lap_ends_the_next_begins_whatever_is_rounded(period_s: float, lap: int) -> None:
    series = Series(times_s=(0.0, period_s / 3), values=(1.0, 2.0), period_s=period_s)
    two = list(islice(series.segments(lap * period_s), 5))
    assert all(before[1] == after[0] for before, after in pairwise(two))
    begin_s, end_s, value = next(series.segments(lap * period_s))
    assert (begin_s, value) == (lap * period_s, 1.0) and end_s > begin_s


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=8),
    st.integers(1, 20),
    st.booleans(),
)
def test_against_every_window(steps: list[tuple[int, int]], window: int, loops: bool) -> None:
    times = [sum(length for length, _ in steps[:index]) for index in range(len(steps))]
    length = sum(duration for duration, _ in steps)
    period = float(length) if loops else math.inf
    series = Series(times_s=tuple(map(float, times)), values=tuple(float(v) for _, v in steps), period_s=period)
    seconds = [value for duration, value in steps for _ in range(duration)]
    seconds = seconds * (window // length + 2) if loops else seconds + [seconds[-1]] * window
    every = [sum(seconds[at : at + window]) / window for at in range(len(seconds) - window + 1)]
    assert slowest_mean(series, float(window)) == pytest.approx(min(every))
