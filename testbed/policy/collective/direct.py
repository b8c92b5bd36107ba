"""Direct all-reduce: every rank sums one chunk and sends the sum to all others, in two steps.

All pairs of ranks talk at once, so it wants a link (or a TCP stream) of its own for each pair, as data centres often
have: what limits there is one stream, not the uplink. Hivemind averages in this way (Ryabinin et al., Moshpit SGD,
NeurIPS 2021, call it butterfly all-reduce); MPI knows it as reduce-scatter and all-gather by pairs.

Order of a sum: chunk r at rank r: its own, then r − 1, r − 2, … around the ring.
"""

from __future__ import annotations

from testbed.policy.collective.primitives import all_gather_direct
from testbed.policy.collective.schedule import GroupShape, RankTransfer, Schedule, ScheduleStep, even_cuts, segmented


def direct(shape: GroupShape, rank: int) -> Schedule:
    """All-reduce in 2 steps of p − 1 messages of n / p each."""
    size = shape.size
    if size == 1:
        return Schedule(even_cuts(1), ((),))
    others = [(rank + distance) % size for distance in range(1, size)]
    sends = tuple(RankTransfer(peer, peer, peer + 1, True) for peer in others)
    receives = tuple(RankTransfer(peer, rank, rank + 1, True) for peer in reversed(others))
    (gather,) = all_gather_direct(rank, size).pipes
    return segmented(Schedule(even_cuts(size), ((ScheduleStep(sends, receives), *gather),)), shape.segments)
