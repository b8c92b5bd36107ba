"""Where a model is cut, and which worker holds which stage."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from testbed.policy.pipeline import PLACEMENTS
from testbed.policy.pipeline.base import Hop
from testbed.policy.pipeline.cuts import cut_at, cut_evenly
from testbed.policy.pipeline.placement import Ground

SITES = (("a", 2), ("b", 2), ("c", 2))
FAR = {frozenset("ab"): 9.0, frozenset("bc"): 1.0, frozenset("ac"): 1.0}


def distance(a: str, b: str) -> Hop:
    return Hop(0.0, FAR[frozenset((a, b))] if a != b else 0.0)


def placed(kind: str, stages: int, **options: Any) -> dict[str, tuple[int, ...]]:
    return PLACEMENTS[kind](PLACEMENTS.options(kind, options)).place(Ground(SITES, stages, distance))


def test_the_slowest_part_is_as_fast_as_any_cut_makes_it() -> None:
    draw = random.Random(0)
    for _ in range(200):
        costs = [draw.choice((0.0, 1.0, draw.random() * 5)) for _ in range(draw.randint(3, 9))]
        slowness = [draw.choice((1.0, 2.0, 0.5)) for _ in range(draw.randint(1, 3))]

        def slowest(parts: tuple[range, ...], costs: list[float] = costs, slow: list[float] = slowness) -> float:
            return max(each * sum(costs[i] for i in part) for each, part in zip(slow, parts, strict=True))

        inner = range(1, len(costs))
        best = min(slowest(cut_at(starts, len(costs))) for starts in combinations(inner, len(slowness) - 1))
        found = cut_evenly(costs, slowness)
        assert slowest(found) == pytest.approx(best)
        assert all(found)


def test_cuts_by_the_user() -> None:
    assert cut_at([2, 5], 6) == (range(2), range(2, 5), range(5, 6))


def test_replicas_of_a_stage_lie_side_by_side() -> None:
    assert placed("in_order", 3) == {"a": (0, 0), "b": (1, 1), "c": (2, 2)}
    assert placed("in_order", 6) == {"a": (0, 1), "b": (2, 3), "c": (4, 5)}
    assert placed("in_order", 2) == {"a": (0, 0), "b": (0, 1), "c": (1, 1)}


def test_whole_replicas_stay_in_a_data_centre() -> None:
    assert placed("whole_replicas", 2) == {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    assert "a has 2 workers" in next(PLACEMENTS["whole_replicas"](None).problems(Ground(SITES, 3, distance)))[0]


def test_an_order_of_the_users_own() -> None:
    assert placed("listed", 3, order="b a c") == {"b": (0, 0), "a": (1, 1), "c": (2, 2)}
    listed = PLACEMENTS["listed"](PLACEMENTS.options("listed", {"order": "b a"}))
    assert "does not name each data centre once" in next(listed.problems(Ground(SITES, 3, distance)))[0]


def test_search_keeps_neighbours_near() -> None:
    assert placed("search", 3) in ({"a": (0, 0), "c": (1, 1), "b": (2, 2)}, {"b": (0, 0), "c": (1, 1), "a": (2, 2)})


def test_search_among_many_data_centres() -> None:
    sites = tuple((name, 1) for name in "hbdfaceg")
    line = Ground((*sites, ("i", 1)), 9, lambda a, b: Hop(0.0, float(abs(ord(a) - ord(b)))))
    stages = PLACEMENTS["search"](PLACEMENTS.options("search", {})).place(line)
    order = "".join(sorted(stages, key=lambda site: stages[site]))
    assert order in ("abcdefghi", "ihgfedcba")
