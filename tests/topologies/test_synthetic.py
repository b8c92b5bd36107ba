"""Seeded models of traces: bounds, means, and that the seed alone decides."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from tests.for_each import for_each
from topologies.traces.synthetic import SYNTHETIC, Levels, Markov, Redraw, Sine, Walk, make


def test_a_sine_keeps_its_mean_and_bounds() -> None:
    steps, period = make("sine", Sine(0.5, 1.5, 60.0, 1.0), "")
    values = [value for _, value in steps]
    assert len(values) == 60 and period == 60.0
    assert math.fsum(values) / 60 == pytest.approx(1.0)
    assert 0.5 <= min(values) < 0.51 and 1.49 < max(values) <= 1.5


def test_a_walk_stays_between_its_bounds() -> None:
    steps, _ = make("walk", Walk(0.25, 1.5, 0.5, 1.0, 5000.0), "x")
    values = [value for _, value in steps]
    assert 0.25 <= min(values) < 0.26 and 1.49 < max(values) <= 1.5
    jumps = [abs(math.log(b / a)) for a, b in pairwise(values)]
    assert 0.2 < math.fsum(jumps) / len(jumps) < 0.5, "a step of 0.5 is 0.4 on average, reflections shorten it"


def test_markov_spends_its_means_in_either_state() -> None:
    steps, length = make("markov", Markov(0.1, 1.0, 20.0, 5.0, 40_000.0), "x")
    ends = [time for time, _ in steps[1:]] + [length]
    high = math.fsum(end - time for (time, value), end in zip(steps, ends, strict=True) if value == 1.0)
    assert high / length == pytest.approx(0.8, abs=0.03)
    assert {value for _, value in steps} == {0.1, 1.0}


def test_redraw_is_uniform() -> None:
    steps, _ = make("redraw", Redraw(0.2, 1.0, 1.0, 4000.0), "x")
    values = sorted(value for _, value in steps)
    assert math.fsum(values) / len(values) == pytest.approx(0.6, abs=0.02)
    assert values[1000] == pytest.approx(0.4, abs=0.03)


@for_each("kind", ["walk", "markov", "redraw"])
def test_the_seed_alone_decides(kind: str) -> None:
    options: Any = SYNTHETIC[kind]
    assert make(kind, options(), "1/a>b") == make(kind, options(), "1/a>b") != make(kind, options(), "1/b>a")
    assert make(kind, options(seed=7), "1/a>b") == make(kind, options(seed=7), "2/b>a")


@for_each(
    ("options", "wrong"),
    [
        (Levels("1 x"), "levels"), (Levels(""), "levels"), (Levels("1 -1"), "levels"), (Sine(2.0, 1.0), "low"),
        (Sine(period=1.0, step=2.0), "step"), (Walk(2.0, 1.0), "low"), (Redraw(length=1e9), "step"),
        (Markov(low=2.0), "low"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options: Any, wrong: str) -> None:
    assert [option for option, _, _ in options.problems()] == [wrong]
