"""Bytes and time of exchanging top-k gradients between m sites of n workers (Shi et al., MLSys 2021; α–β model).

d elements of 4 bytes, a share ρ of them kept, 8 bytes per pair of value and index. ``outside`` is a site's uplink,
shared by its workers; ``inside`` a worker's link in its site.
"""

from __future__ import annotations

from itertools import pairwise

from testbed.engine.collectives.sums import top_count

PAIR_BYTES = 8


def hitopk_wan_bytes(sites: int, workers: int, elements: int, density: float) -> int:
    """Payload out of each site: (m − 1) · 8 bytes for each kept pair of its n shards."""
    cuts = [elements * i // workers for i in range(workers + 1)]
    kept = sum(top_count(stop - start, density) for start, stop in pairwise(cuts))
    return (sites - 1) * kept * PAIR_BYTES


def flat_sparse_wan_bytes(sites: int, workers: int, elements: int, density: float) -> int:
    """Payload out of each site: each of n workers sends its k pairs to each of the n (m − 1) workers elsewhere."""
    return workers * workers * (sites - 1) * top_count(elements, density) * PAIR_BYTES
