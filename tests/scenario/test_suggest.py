"""The nearest word."""

from __future__ import annotations

from testbed.scenario.reading.suggest import edit_distance, suggestion
from tests.for_each import for_each


@for_each(
    ("word", "known", "meant"),
    [
        ("fas", ["hfa", "fsa", "mixedsync"], "fsa"),
        ("densty", ["density", "kind"], "density"),
        ("ab", ["a", "ba"], "ba"),  # equally near, but made of the same letters
        ("Cubic", ["reno", "cubic"], "cubic"),
        ("bandwith", ["bandwidth", "delay"], "bandwidth"),
    ],
)
def test_nearest(word: str, known: list[str], meant: str) -> None:
    assert suggestion(word, known) == f"did you mean '{meant}'?"


def test_nothing_near() -> None:
    assert suggestion("explode", ["fsa", "hfa"]) == ""
    assert suggestion("x", []) == ""


def test_a_swap_of_neighbours_costs_one() -> None:
    assert edit_distance("fas", "fsa") == 1
    assert edit_distance("fas", "hfa") == 2
    assert edit_distance("", "abc") == 3
