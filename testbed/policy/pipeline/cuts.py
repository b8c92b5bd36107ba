"""Where a model is cut into the stages of a pipeline: evenly by cost, or as the user says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf


def cut_evenly(costs: Sequence[float], slowness: Sequence[float]) -> tuple[range, ...]:
    """Return the segments of each part, in order, so that the slowest part is as fast as possible; no part is empty.

    costs     cost of each segment, in order
    slowness  for each part, that of its device: the part takes the sum of its costs times this

    By dynamic programming over the parts and where each may end, as in PipeDream (Narayanan et al., SOSP 2019, section
    3.1).
    """
    segments = len(costs)
    parts = len(slowness)
    assert parts <= segments, f"{parts} parts of {segments} segments"
    sums = [0.0, *accumulate(costs)]
    slowest = [0.0, *[inf] * segments]  # for each end of the parts so far: the least time of the slowest of them
    begins: list[list[int]] = []
    for part, slow in enumerate(slowness):
        following = [inf] * (segments + 1)
        begin = [0] * (segments + 1)
        for end in range(part + 1, segments - (parts - part - 1) + 1):
            for start in range(part, end):
                time_s = max(slowest[start], slow * (sums[end] - sums[start]))
                if time_s < following[end]:
                    following[end] = time_s
                    begin[end] = start
        slowest = following
        begins.append(begin)
    ends = [segments]
    for begin in reversed(begins):
        ends.append(begin[ends[-1]])
    return tuple(range(start, stop) for start, stop in pairwise(reversed(ends)))


def cut_at(starts: Sequence[int], segments: int) -> tuple[range, ...]:
    """Return the segments of each part. The first part begins with segment 0, each other with one of ``starts``."""
    return tuple(range(start, stop) for start, stop in pairwise([0, *starts, segments]))
