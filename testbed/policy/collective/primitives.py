"""Schedules of the operations other than all-reduce: broadcast, all-gather, reduce-scatter.

Chunk r is rank r's own, where ranks have a chunk each.
"""

from __future__ import annotations

from testbed.policy.collective.ring import ring_all_gather, ring_reduce_scatter
from testbed.policy.collective.schedule import RankTransfer, Schedule, ScheduleStep, Steps, even_cuts, placed, segmented
from testbed.policy.collective.tree import binary, tree_broadcast


def _turned(size: int, root: int) -> list[int]:
    """Ranks with ``root`` first: position i of a tree is rank (root + i) mod p."""
    return [(root + i) % size for i in range(size)]


def broadcast(rank: int, size: int, root: int, segments: int = 1) -> Schedule:
    """The root's buffer to all, over a binary tree."""
    steps = tree_broadcast(binary((rank - root) % size, size))
    return segmented(Schedule(even_cuts(1), (placed(steps, _turned(size, root), [(0, 1)]),)), segments)


def all_gather(rank: int, size: int) -> Schedule:
    """Every rank's chunk to every rank, around the ring."""
    return Schedule(even_cuts(size), (ring_all_gather(rank, size),))


def all_gather_direct(rank: int, size: int) -> Schedule:
    """Every rank's chunk to every rank, each by a message of its own: one latency, and no rank forwards for others."""
    turned = [(rank + i) % size for i in range(1, size)]
    sends = tuple(RankTransfer(peer, rank, rank + 1) for peer in turned)
    receives = tuple(RankTransfer(peer, peer, peer + 1) for peer in reversed(turned))
    return _direct(size, ScheduleStep(sends, receives))


def reduce_scatter(rank: int, size: int) -> Schedule:
    """Rank r ends with the sum of chunk r, around the ring."""
    return Schedule(even_cuts(size), (ring_reduce_scatter(rank, size),))


def _direct(size: int, step: ScheduleStep) -> Schedule:
    steps: Steps = (step,) if step != ScheduleStep() else ()
    return Schedule(even_cuts(size), (steps,))
