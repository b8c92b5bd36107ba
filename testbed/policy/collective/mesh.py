"""All-reduce on a mesh without wrap-around links, in two dimensions: along rows, then along columns.

Google's TPU pods sum gradients by a reduce-scatter along one dimension and one along the other, then all-gathers back:
on a torus (Ying et al., "Image Classification at Supercomputer Scale", 2018) and on meshes (Kumar and Jouppi, "Highly
Available Data Parallel ML Training on Mesh Networks", 2020). ``torus2d`` runs rings, in which the last rank of a row
sends to the first. A mesh has no link between these two. So here each rank sends to its neighbours only, in both
directions at once. In a line of k ranks, each link carries n elements each way. A ring laid over that line would carry
2 (k − 1)/k n, and each of its steps would take as long as a message across the whole line.

Order of a sum along a line: rank c starts with its own chunk c, adds the sum of the ranks before it (made from rank 0
upwards), then the sum of the ranks behind it (made from the last rank downwards). Rows first, then columns.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.policy.collective.hierarchical import grid, two_level
from testbed.policy.collective.schedule import GroupShape, RankTransfer, Schedule, ScheduleStep, Steps, busy, segmented

Sent = Callable[[int, int], int | None]


def mesh2d(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce on ``torus2d``'s grid: 2 (X − 1) steps of n / X along rows, 2 (Y − 1) of n / (X Y) along columns."""
    return segmented(two_level(grid(shape), rank, line_reduce_scatter, line_all_gather), shape.segments)


def line_reduce_scatter(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank r ends with the sum of chunk r. A chunk's farthest contribution leaves first."""

    def sent(sender: int, step: int) -> int | None:
        """Return the chunk that a rank passes on to the next rank, away from rank 0; ``None``: none in this step."""
        chunk = size - 1 + sender - step
        return chunk if sender < chunk < size else None

    return busy(*(_both_ways(rank, size, sent, step, reduce=True) for step in range(size - 1)))


def line_all_gather(rank: int, size: int) -> Steps:
    """Cut into ``size`` chunks; rank r begins with chunk r, and all ranks end with all chunks."""

    def sent(sender: int, step: int) -> int | None:
        return sender - step if sender - step >= 0 and sender < size - 1 else None

    return busy(*(_both_ways(rank, size, sent, step, reduce=False) for step in range(size - 1)))


def _both_ways(rank: int, size: int, sent: Sent, step: int, *, reduce: bool) -> ScheduleStep:
    """Return what a rank sends and receives in one step: first transfers away from rank 0, then those towards it.

    sent  the chunk that a rank sends away from rank 0 in a step. For the other direction, ranks and chunks are counted
          from the other end of the line
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
