"""Bytes and time of exchanging top-k gradients between m sites of n workers (Shi et al., MLSys 2021; α–β model).

d elements of 4 bytes, a share ρ of them kept, 8 bytes per pair of value and index. ``outside`` is a site's uplink,
shared by its workers; ``inside`` a worker's link in its site.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from testbed.engine.collectives.sums import top_count
from tests.policy.collective.cost import LinkCost, message_s

VALUE_BYTES = 4
PAIR_BYTES = 8


@dataclass(frozen=True, slots=True)
class Sites:
    """``sites`` data centres of ``workers`` workers each."""

    sites: int
    workers: int
    inside: LinkCost
    outside: LinkCost


def hitopk_wan_bytes(sites: int, workers: int, elements: int, density: float) -> int:
    """Payload out of each site: (m − 1) · 8 bytes for each kept pair of its n shards."""
    cuts = [elements * i // workers for i in range(workers + 1)]
    kept = sum(top_count(stop - start, density) for start, stop in pairwise(cuts))
    return (sites - 1) * kept * PAIR_BYTES


def flat_sparse_wan_bytes(sites: int, workers: int, elements: int, density: float) -> int:
    """Payload out of each site: each of n workers sends its k pairs to each of the n (m − 1) workers elsewhere."""
    return workers * workers * (sites - 1) * top_count(elements, density) * PAIR_BYTES


def dense_wan_bytes(sites: int, elements: int) -> float:
    """Payload out of each site by BlueConnect: 2 (m − 1)/m · 4 d."""
    return 2 * (sites - 1) / sites * elements * VALUE_BYTES


def flat_ring_wan_bytes(ranks: int, elements: int) -> float:
    """Payload out of each site by one ring through all workers, site by site: 2 (p − 1)/p · 4 d."""
    return 2 * (ranks - 1) / ranks * elements * VALUE_BYTES


def hitopk_s(where: Sites, elements: int, density: float, select_s: float = 0.0) -> float:
    """Reduce-scatter and all-gather inside, ``select_s`` for the choice, the pairs across."""
    part = elements * VALUE_BYTES / where.workers
    inside_s = (where.workers - 1) * (message_s(where.inside, part) + where.inside.copy_s(part))
    across = hitopk_wan_bytes(where.sites, where.workers, elements, density)
    return inside_s + select_s + (where.sites - 1) * where.outside.alpha_s + across * where.outside.beta_s


def flat_sparse_s(where: Sites, elements: int, density: float, select_s: float = 0.0) -> float:
    """One message to everybody else; the site's uplink carries them all."""
    across = flat_sparse_wan_bytes(where.sites, where.workers, elements, density)
    return select_s + where.outside.alpha_s + across * where.outside.beta_s


def break_even_density(sites: int) -> float:
    """Below this density the hierarchical top-k sends fewer bytes than dense BlueConnect: 2 · 4 / (8 m)."""
    return 2 * VALUE_BYTES / (PAIR_BYTES * sites)
