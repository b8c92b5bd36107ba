"""The k-th largest magnitude from histograms, against sorting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.collective.threshold import TURNS, bin_of_kth, share_of_ties, top_count


@given(values=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=60), data=st.data())
def test_three_turns_find_the_kth_largest(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    prefix, wanted = 0, k
    for turn in TURNS:
        counts = [0] * (1 << turn.bits)
        for value in values:
            if value >> (turn.shift + turn.bits) == prefix:
                counts[value >> turn.shift & ((1 << turn.bits) - 1)] += 1
        number, above = bin_of_kth(counts, wanted)
        prefix, wanted = prefix << turn.bits | number, wanted - above
    ordered = sorted(values, reverse=True)
    assert prefix == ordered[k - 1]
    assert wanted == k - sum(value > prefix for value in values)


def test_a_k_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="4-th largest of 3"):
        bin_of_kth([1, 2, 0], 4)


@given(ties=st.lists(st.integers(0, 9), min_size=1, max_size=8), data=st.data())
def test_ties_are_taken_from_the_lowest_ranks_first(ties: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(0, sum(ties)))
    shares = [share_of_ties(ties, wanted, rank) for rank in range(len(ties))]
    assert sum(shares) == wanted
    taken_all = [share == tie for share, tie in zip(shares, ties, strict=True)]
    first_partial = taken_all.index(False) if False in taken_all else len(ties)
    assert not any(shares[first_partial + 1 :])


def test_counts_of_a_share() -> None:
    assert [top_count(n, 0.01) for n in (0, 1, 50, 149, 151, 1000)] == [0, 1, 1, 1, 2, 10]
    assert top_count(10, 1.0) == 10
