"""All-to-all by pairs (as MPI does for large messages): in step i, rank r sends to r + i and receives from r − i.

Chunk q of the buffer's first half goes to rank q; chunk q of its second half has come from rank q.
"""

from __future__ import annotations

from testbed.policy.collective.schedule import Schedule, even_cuts, exchange


def all_to_all(rank: int, size: int) -> Schedule:
    """Send every rank's parcels, one for each other rank, in p − 1 steps."""
    steps = []
    for step in range(1, size):
        to = (rank + step) % size
        source = (rank - step) % size
        steps.append(exchange(to, (to, to + 1), source, (size + source, size + source + 1)))
    return Schedule(even_cuts(2 * size), (tuple(steps),))
