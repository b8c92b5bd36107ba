"""All-to-all by pairs (as MPI does for large messages): in step i each rank sends to rank + i, and takes of rank − i.

Chunk q of the first half is what goes to rank q, chunk q of the second half what has come from it.
"""

from __future__ import annotations

from testbed.policy.collective.schedule import Schedule, even_cuts, exchange


def all_to_all(rank: int, size: int) -> Schedule:
    """Every rank's parcels, one for each other rank, in p − 1 steps."""
    steps = []
    for step in range(1, size):
        to = (rank + step) % size
        source = (rank - step) % size
        steps.append(exchange(to, (to, to + 1), source, (size + source, size + source + 1)))
    return Schedule(even_cuts(2 * size), (tuple(steps),))
