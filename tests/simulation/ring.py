"""The ring all-reduce on private links as a recurrence over all ranks at once, for rings of thousands.

A ring of p ranks sends 2·(p - 1)·p messages; simulated one by one, these take minutes at a thousand ranks. On links
that nothing else uses they follow a max-plus recurrence, and numpy computes all ranks i of a step s together:

    sent[i, s] = max(ready[i, s], sent[i, s - 1]) + bytes / rate[i]       when the link is free and the chunk is ready
    arrived[i + 1, s] = sent[i, s] + delay[i]
    ready[i, s + 1] = max(arrived[i, s], added[i]) + bytes · gamma        in the first p - 1 steps; later: arrived

Equal to ``testbed.policy.collective.predict`` on the same schedules and to the roles (``test_ring.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RingLinks:
    """By rank, to its right neighbour: one-way delay (s) and seconds per byte. ``gamma_s``: seconds to add one byte."""

    delay_s: Times
    byte_s: Times
    gamma_s: float = 0.0


def ring_times_s(size_bytes: float, links: RingLinks, start_s: Times | float = 0.0, header_bytes: float = 0.0) -> Times:
    """Return when each rank has all sums, in seconds.

    ``start_s``: when each rank begins; ``header_bytes``: sent with each chunk.
    """
    ranks = len(links.delay_s)
    chunk = size_bytes / ranks
    sending_s = (chunk + header_bytes) * links.byte_s
    ready = np.full(ranks, 0.0) + start_s
    sent, added = ready.copy(), ready.copy()
    for step in range(2 * (ranks - 1)):
        np.maximum(sent, ready, out=sent)
        sent += sending_s
        ready = np.roll(sent + links.delay_s, 1)
        if step < ranks - 1:
            np.maximum(added, ready, out=added)
            added += chunk * links.gamma_s
            ready = added.copy()
    return ready
