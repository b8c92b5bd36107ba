"""Ranks of collective operations, from the Plan: which workers take part, in which order, grouped by data centre."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.plan.once import once_per_plan
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.shard.slices import ELEMENT_BYTES

PIECE_BYTES = 16_000  # smallest size of a segment
MOST_SEGMENTS = 8  # largest number of segments of a chunk


@dataclass(frozen=True, slots=True)
class Ranks:
    """``names``: the workers in rank order; ``sites``: the same workers in the same order, grouped by data centre."""

    names: tuple[str, ...]
    sites: tuple[tuple[str, ...], ...]

    def shape(self, segments: int = 1) -> GroupShape:
        """Return the shape of the group, with data centres as groups of ranks. ``segments``: number for each chunk."""
        groups = []
        first = 0
        for site in self.sites:
            groups.append(tuple(range(first, first + len(site))))
            first += len(site)
        return GroupShape(len(self.names), tuple(groups), segments)

    def site_of(self, name: str) -> tuple[str, ...]:
        return next(site for site in self.sites if name in site)

    def inside(self, name: str) -> Ranks:
        site = self.site_of(name)
        return Ranks(site, (site,))

    def beginning_with(self, name: str) -> Ranks:
        """Return the same workers with ``name`` as the first rank, followed by the others of its data centre."""
        own_site = self.site_of(name)
        reordered = (name, *(each for each in own_site if each != name))
        sites = (reordered, *(site for site in self.sites if site != own_site))
        return Ranks(tuple(worker for site in sites for worker in site), sites)

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Return the workers, one per data centre, that have the same position there as ``name`` has in its own.

        Raise ``ScenarioError`` unless all data centres have equally many workers.
        """
        if len({len(site) for site in self.sites}) > 1:
            sizes = ", ".join(f"{site[0].split('/')[0]}: {len(site)}" for site in self.sites)
            raise ScenarioError(f"paradigm: hitopk needs equally many workers in every data centre ({sizes})")
        number = self.site_of(name).index(name)
        return tuple(site[number] for site in self.sites)


def segments_of(plan: Plan, ranks: Ranks, elements: int) -> int:
    """Return the number of segments into which a chunk is cut.

    Over a WAN, segments let the hops of a chunk overlap, which hides delay. But each segment costs a message.
    """
    if len(ranks.sites) == 1 or not plan.has_wan:
        return 1
    chunk_bytes = ELEMENT_BYTES * elements // len(ranks.names)
    return min(MOST_SEGMENTS, max(1, chunk_bytes // PIECE_BYTES))


@once_per_plan
def ranks_of(plan: Plan, present: tuple[str, ...] | None = None) -> Ranks:
    """Return the ranks of all training workers, or of those ``present``, in the Plan's order of data centres."""
    by_site: dict[str, list[str]] = {}
    for worker in plan.training_workers:
        if present is None or worker.name in present:
            by_site.setdefault(worker.data_center, []).append(worker.name)
    sites = tuple(map(tuple, by_site.values()))
    return Ranks(tuple(worker for site in sites for worker in site), sites)
