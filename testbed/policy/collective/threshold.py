"""The k-th largest magnitude among several ranks, found from histograms: the coordinated choice of top-k.

Magnitudes of float32 order as their bit patterns without the sign, 31 bits: 11, 11 and 9 of them are looked at in
turn. In each turn every rank counts its candidates per bin, the counts are summed, and all ranks go on with the same
bin. What is left at the end are equal numbers; of those the lowest indices are taken, so the choice is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """Bits ``shift`` to ``shift + bits`` of the magnitude."""

    shift: int
    bits: int


TURNS = (Turn(20, 11), Turn(9, 11), Turn(0, 9))


def bin_of_kth(counts: Sequence[int], k: int) -> tuple[int, int]:
    """The bin of the k-th largest (k ≥ 1, at most the sum of ``counts``), and how many lie in the bins above."""
    above = 0
    for number in reversed(range(len(counts))):
        if above + counts[number] >= k:
            return number, above
        above += counts[number]
    raise ValueError(f"the {k}-th largest of {above}")


def share_of_ties(ties: Sequence[int], wanted: int, rank: int) -> int:
    """How many of its numbers that equal the threshold ``rank`` takes: those of lower ranks come first."""
    return max(0, min(ties[rank], wanted - sum(ties[:rank])))


def top_count(elements: int, density: float) -> int:
    """k for a share of ``elements``: rounded, at least one, and none of nothing."""
    return min(elements, max(1, round(elements * density)))
