"""A few of the random schedules, and those that once broke something."""

from __future__ import annotations

import pytest

from tests.faults.search import search

FOUND = ()  # seeds of schedules that broke an invariant, and do not any more


@pytest.mark.parametrize("seed", [*range(10), *FOUND])
def test_no_invariant_is_broken(seed: int) -> None:
    assert search(range(seed, seed + 1), {}) == []


@pytest.mark.slow
def test_nor_by_two_thousand() -> None:
    assert search(range(2000), {}) == []
