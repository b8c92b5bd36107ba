"""Set operations on times: a set is an array of sorted, disjoint, half-open intervals, of shape (n, 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of times; ``edges[i] = (from, to)`` in seconds. ``union`` makes one from any intervals."""

    edges: NDArray[np.float64]

    def total(self) -> float:
        """Return the length of all intervals together, in s."""
        return float((self.edges[:, 1] - self.edges[:, 0]).sum())

    def minus(self, other: Intervals) -> Intervals:
        if not len(self.edges) or not len(other.edges):
            return self
        low = min(self.edges[0, 0], other.edges[0, 0])
        high = max(self.edges[-1, 1], other.edges[-1, 1])
        gaps = np.column_stack((np.append(low, other.edges[:, 1]), np.append(other.edges[:, 0], high)))
        return self.intersection(union(gaps))

    def intersection(self, other: Intervals) -> Intervals:
        first = np.searchsorted(other.edges[:, 1], self.edges[:, 0], side="right")
        last = np.searchsorted(other.edges[:, 0], self.edges[:, 1], side="left")
        counts = np.maximum(last - first, 0)
        # one piece for each pair of intervals that overlap: mine and theirs are the two intervals' indices
        mine = np.repeat(np.arange(len(counts)), counts)
        theirs = np.arange(len(mine)) - (np.cumsum(counts) - counts - first)[mine]
        return Intervals(np.clip(other.edges[theirs], self.edges[mine, :1], self.edges[mine, 1:]))


def union(pairs: ArrayLike) -> Intervals:
    """Return the set that (from, to) pairs cover. They may overlap and come in any order; empty ones are ignored."""
    array = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    array = array[array[:, 1] > array[:, 0]]
    if not len(array):
        return Intervals(array)
    array = array[np.argsort(array[:, 0], kind="stable")]
    reach = np.maximum.accumulate(array[:, 1])
    starts = np.append(True, array[1:, 0] > reach[:-1])
    ends = np.append(starts[1:], True)
    return Intervals(np.column_stack((array[starts, 0], reach[ends])))
