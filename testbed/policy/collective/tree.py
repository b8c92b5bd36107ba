"""All-reduce over trees: sums go up to the root, the result comes down.

Order of a sum: a node's own contribution first, then its children's subtrees in rank order.
A chain is a tree, too. If the tensor travels along it in pieces, the ranks send and receive at the same time, and no
rank sends or receives more than the whole tensor each way.
The double binary tree (Sanders, Speck, Träff, 2009; NCCL 2.4) uses two trees, each for half of the buffer. No rank is
an inner node in both, so all ranks send and receive about the same amount.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.collective.schedule import (
    GroupShape,
    RankTransfer,
    Schedule,
    ScheduleStep,
    Steps,
    busy,
    even_cuts,
    segmented,
    side_by_side,
)


@dataclass(frozen=True, slots=True)
class TreePosition:
    """One rank's place in a tree: ``parent`` is None at the root."""

    parent: int | None
    children: tuple[int, ...]


def binary(rank: int, size: int) -> TreePosition:
    """The complete binary tree in heap order: the children of r are 2 r + 1 and 2 r + 2."""
    children = tuple(child for child in (2 * rank + 1, 2 * rank + 2) if child < size)
    return TreePosition((rank - 1) // 2 if rank else None, children)


def binomial(rank: int, size: int) -> TreePosition:
    """The binomial tree: the parent of r is r without its lowest set bit."""
    reach = rank & -rank or size
    children = []
    distance = 1
    while distance < reach and rank + distance < size:
        children.append(rank + distance)
        distance *= 2
    return TreePosition(rank & (rank - 1) if rank else None, tuple(children))


def in_order(rank: int, size: int) -> TreePosition:
    """NCCL's tree: rank 0 above an in-order binary tree of the ranks 1…p − 1, whose leaves are the odd ranks."""
    if rank == 0:
        top = 1 << max(size - 1, 0).bit_length() >> 1
        return TreePosition(None, (top,) if size > 1 else ())
    low = rank & -rank
    parent = (rank ^ low) | (low << 1)
    children = [child for child in (rank - low // 2 if low > 1 else None, _right(rank, low, size)) if child is not None]
    return TreePosition(parent if parent < size else rank ^ low, tuple(children))


def _right(rank: int, low: int, size: int) -> int | None:
    step = low // 2
    while step and rank + step >= size:
        step //= 2
    return rank + step if step else None


def mirrored(rank: int, size: int) -> TreePosition:
    """The second tree of the double binary tree: ``in_order``, with ranks reversed (p even) or shifted by 1 (p odd)."""

    def there(other: int) -> int:
        return size - 1 - other if size % 2 == 0 else (other - 1) % size

    def back(other: int) -> int:
        return size - 1 - other if size % 2 == 0 else (other + 1) % size

    place = in_order(there(rank), size)
    parent = None if place.parent is None else back(place.parent)
    return TreePosition(parent, tuple(back(child) for child in place.children))


def chain(rank: int, size: int) -> TreePosition:
    """One rank after the other."""
    return TreePosition(rank - 1 if rank else None, (rank + 1,) if rank + 1 < size else ())


def tree_reduce(place: TreePosition) -> Steps:
    """Sum chunk 0, the whole buffer, at the root."""
    up = () if place.parent is None else (RankTransfer(place.parent, 0, 1, True),)
    down = tuple(RankTransfer(child, 0, 1, True) for child in place.children)
    return busy(ScheduleStep(receives=down), ScheduleStep(sends=up))


def tree_broadcast(place: TreePosition) -> Steps:
    """Send the root's chunk 0, the whole buffer, to all ranks. The largest subtree is served first."""
    up = () if place.parent is None else (RankTransfer(place.parent, 0, 1),)
    down = tuple(RankTransfer(child, 0, 1) for child in reversed(place.children))
    return busy(ScheduleStep(receives=up), ScheduleStep(sends=down))


def tree(shape: GroupShape, rank: int) -> Schedule:
    """Reduce to rank 0 over a binary tree, then broadcast: 2 ⌊log2 p⌋ steps."""
    return _all_reduce(binary(rank, shape.size), shape.segments)


def binomial_tree(shape: GroupShape, rank: int) -> Schedule:
    """Reduce to rank 0 over a binomial tree, then broadcast: 2 ⌈log2 p⌉ steps of n each."""
    return _all_reduce(binomial(rank, shape.size), shape.segments)


def double_binary_tree(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce over two trees, half of the buffer each."""
    first = _all_reduce(in_order(rank, shape.size), shape.segments)
    second = _all_reduce(mirrored(rank, shape.size), shape.segments)
    return side_by_side([first, second])


def _all_reduce(place: TreePosition, segments: int) -> Schedule:
    steps = tree_reduce(place) + tree_broadcast(place)
    return segmented(Schedule(even_cuts(1), (steps,)), segments)


def broadcast(rank: int, size: int, segments: int = 1) -> Schedule:
    """Send rank 0's buffer to all ranks over a binary tree."""
    return segmented(Schedule(even_cuts(1), (tree_broadcast(binary(rank, size)),)), segments)


def chain_reduce(rank: int, size: int, segments: int) -> Schedule:
    """Sum at rank 0 along a chain: each rank adds the sum of the ranks behind it to its own contribution."""
    return segmented(Schedule(even_cuts(1), (tree_reduce(chain(rank, size)),)), segments)


def chain_broadcast(rank: int, size: int, segments: int) -> Schedule:
    """Send rank 0's buffer to all ranks along a chain."""
    return segmented(Schedule(even_cuts(1), (tree_broadcast(chain(rank, size)),)), segments)
