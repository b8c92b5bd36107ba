"""All-reduce on a mesh without wrap-around links, in two dimensions: along rows, then along columns.

Google's TPU pods sum gradients by a reduce-scatter along one dimension and one along the other, then all-gathers back:
on a torus (Ying et al., "Image Classification at Supercomputer Scale", 2018) and on meshes (Kumar and Jouppi, "Highly
Available Data Parallel ML Training on Mesh Networks", 2020). ``torus2d`` runs rings, in which the last rank of a row
sends to the first. A mesh has no link between these two: here each rank sends to its neighbours only, in both
directions at once. Of k ranks in a line, each link carries n elements each way. A ring laid over that line would carry
2 (k − 1)/k n, and each of its steps would take as long as a message across the whole line.

Order of a sum along a line: chunk c at rank c: its own, then that of the ranks before it (the first one's is added to
by the second, and so on), then that of the ranks behind it (from the last one on). Rows first, then columns.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.policy.collective.hierarchical import grid, two_level
from testbed.policy.collective.schedule import GroupShape, RankTransfer, Schedule, ScheduleStep, Steps, busy, segmented

Sent = Callable[[int, int], int | None]


def mesh2d(shape: GroupShape, rank: int) -> Schedule:
    """On the grid of ``torus2d``: 2 (X − 1) steps of n / X along rows, then 2 (Y − 1) of n / (X Y) along columns."""
    return segmented(two_level(grid(shape), rank, line_reduce_scatter, line_all_gather), shape.segments)


def line_reduce_scatter(rank: int, size: int) -> Steps:
    """``size`` chunks; rank r ends with the sum of chunk r. A chunk's farthest contribution leaves first."""

    def sent(sender: int, step: int) -> int | None:
        """The chunk that a rank passes on to the next one, away from rank 0."""
        chunk = size - 1 + sender - step
        return chunk if sender < chunk < size else None

    return busy(*(_both_ways(rank, size, sent, step, reduce=True) for step in range(size - 1)))


def line_all_gather(rank: int, size: int) -> Steps:
    """``size`` chunks; rank r begins with chunk r, all end with all."""

    def sent(sender: int, step: int) -> int | None:
        return sender - step if sender - step >= 0 and sender < size - 1 else None

    return busy(*(_both_ways(rank, size, sent, step, reduce=False) for step in range(size - 1)))


def _both_ways(rank: int, size: int, sent: Sent, step: int, *, reduce: bool) -> ScheduleStep:
    """Return what a rank sends and receives in one step, first away from rank 0 and then towards it.

    Towards rank 0 the line is walked with ranks and chunks counted from its other end.
    """
    sends = []
    receives = []
    for direction in (1, -1):
        end = 0 if direction == 1 else size - 1
        distance = abs(rank - end)
        out = sent(distance, step)
        if out is not None:
            chunk = end + direction * out
            sends.append(RankTransfer(rank + direction, chunk, chunk + 1, reduce))
        arriving = sent(distance - 1, step) if distance else None
        if arriving is not None:
            chunk = end + direction * arriving
            receives.append(RankTransfer(rank - direction, chunk, chunk + 1, reduce))
    return ScheduleStep(tuple(sends), tuple(receives))
