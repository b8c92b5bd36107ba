"""Times in logs: rounded as Python rounds, wherever they lie."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from testbed.results.events import microseconds


@given(st.one_of(st.floats(0, 1e3), st.floats(0, 1e12), st.floats(-1, 1)))
def test_any_time_is_rounded_as_python_rounds(t: float) -> None:
    assert microseconds(t) == round(t, 6)


@given(st.integers(0, 10**14), st.integers(-4, 4))
def test_also_about_half_way_between_two_microseconds(whole: int, steps: int) -> None:
    t = (whole + 0.5) / 1e6
    for _ in range(abs(steps)):
        t = math.nextafter(t, math.copysign(math.inf, steps))
    assert microseconds(t) == round(t, 6)
