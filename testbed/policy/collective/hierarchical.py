"""All-reduce in two levels: inside groups (data centres) and across them.

``three_phase_ring`` (Jia et al., 2018): each group reduces to its first rank, these representatives form a ring, and
each broadcasts the result in its group. ``blueconnect`` (Cho et al., 2019) leaves no rank idle: reduce-scatter inside,
rings across groups among the ranks with the same part, all-gather inside. ``torus2d`` (Mikami et al., 2018) does the
same on a grid of ranks. Order of a sum: inside a group in ring order, then across the groups in ring order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isqrt, lcm

from testbed.policy.collective.ring import ring_all_gather, ring_reduce_scatter
from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    busy,
    even_cuts,
    merged,
    placed,
    segmented,
)

Groups = tuple[tuple[int, ...], ...]
Operation = Callable[[int, int], Steps]  # steps of a rank among a number of ranks, each with a chunk of its own


def blueconnect(shape: GroupShape, rank: int) -> Schedule:
    """BlueConnect. If groups differ in size, the buffer is cut wherever a share of any group begins."""
    return segmented(two_level(shape.sites(), rank), shape.segments)


def torus2d(shape: GroupShape, rank: int) -> Schedule:
    """``blueconnect`` on a grid's rows: the groups if they are equally large, else a grid as square as possible."""
    return segmented(two_level(grid(shape), rank), shape.segments)


def three_phase_ring(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in which only one rank per group communicates across, as if only that rank had an outside network."""
    groups = shape.sites()
    chunks = lcm(len(groups), *(len(group) for group in groups))
    group = next(group for group in groups if rank in group)
    inside = _equal_ranges(len(group), chunks)
    representatives = tuple(group[0] for group in groups)
    across: Steps = ()
    if rank in representatives:
        across = _ring(representatives.index(rank), representatives, _equal_ranges(len(groups), chunks))
    up, down = _through_first(group, rank, inside)
    return segmented(Schedule(even_cuts(chunks), (up + across + down,)), shape.segments)


def grid(shape: GroupShape) -> Groups:
    """Return the rows of a torus: Y rows of X ranks, X · Y = p; if p is prime, there is one row, a plain ring."""
    groups = shape.sites()
    if len(groups) > 1 and len({len(group) for group in groups}) == 1:
        return groups
    rows = max(rows for rows in range(1, isqrt(shape.size) + 1) if shape.size % rows == 0)
    columns = shape.size // rows
    return tuple(tuple(range(row * columns, (row + 1) * columns)) for row in range(rows))


def two_level(
    groups: Groups, rank: int, reduce_scatter: Operation = ring_reduce_scatter, all_gather: Operation = ring_all_gather
) -> Schedule:
    """Reduce-scatter inside the groups, all-reduce each part across groups, all-gather inside, by these operations."""
    scale = lcm(*(len(group) for group in groups))
    parts = sorted({i * scale // len(group) for group in groups for i in range(len(group) + 1)})
    rings = len(groups)
    group = next(group for group in groups if rank in group)
    local = group.index(rank)
    begins = [parts.index(i * scale // len(group)) * rings for i in range(len(group) + 1)]
    shares = list(pairwise(begins))
    mine = range(shares[local][0] // rings, shares[local][1] // rings)

    def sum_across(part: int) -> Steps:
        owners = [group[parts[part] * len(group) // scale] for group in groups]  # of each group, the rank with the part
        position = owners.index(rank)
        first = part * rings
        steps = reduce_scatter(position, rings) + all_gather(position, rings)
        return placed(steps, owners, [(first + i, first + i + 1) for i in range(rings)])

    across = merged(map(sum_across, mine))
    inside_in = placed(reduce_scatter(local, len(group)), group, shares)
    inside_out = placed(all_gather(local, len(group)), group, shares)
    return Schedule(_cuts(parts, rings), (inside_in + across + inside_out,))


def _ring(position: int, members: Sequence[int], ranges: Sequence[tuple[int, int]]) -> Steps:
    size = len(members)
    return placed(ring_reduce_scatter(position, size) + ring_all_gather(position, size), members, ranges)


def _cuts(parts: list[int], rings: int) -> tuple[int, ...]:
    """Return cuts, in integers, of every part into ``rings`` chunks."""
    cuts = [0]
    for start, stop in pairwise(parts):
        cuts += [start * rings + (stop - start) * (i + 1) for i in range(rings)]
    return tuple(cuts)


def _equal_ranges(count: int, chunks: int) -> list[tuple[int, int]]:
    width = chunks // count
    return [(i * width, (i + 1) * width) for i in range(count)]


def _through_first(group: Sequence[int], rank: int, ranges: Sequence[tuple[int, int]]) -> tuple[Steps, Steps]:
    """Return a reduce to the group's first rank, by a reduce-scatter and a gather, and the reverse as a broadcast."""
    local = group.index(rank)
    size = len(group)
    scatter = placed(ring_reduce_scatter(local, size), group, ranges)
    gather = placed(ring_all_gather(local, size), group, ranges)
    if local:
        mine = (RankTransfer(group[0], *ranges[local]),)
        return (*scatter, ScheduleStep(sends=mine)), (ScheduleStep(receives=mine), *gather)
    others = tuple(RankTransfer(member, *ranges[i]) for i, member in enumerate(group) if i)
    return (*scatter, *busy(ScheduleStep(receives=others))), (*busy(ScheduleStep(sends=others)), *gather)
