"""Ranks and their groups, from the Plan: which workers take part, in which data centre, in which order."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.plan.once import once_per_plan
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.shard.slices import ELEMENT_BYTES

PIECE_BYTES = 16_000
MOST_SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class Ranks:
    """``names`` in rank order; ``sites``: the same, data centre by data centre."""

    names: tuple[str, ...]
    sites: tuple[tuple[str, ...], ...]

    def shape(self, segments: int = 1) -> GroupShape:
        """Return the groups as ranks."""
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
        """Return the same ranks with ``name`` as the first, and its data centre's others after it."""
        first = self.site_of(name)
        own = (name, *(each for each in first if each != name))
        sites = (own, *(site for site in self.sites if site != first))
        return Ranks(tuple(worker for site in sites for worker in site), sites)

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Return each data centre's worker with the number of ``name``. ``ScenarioError`` if they differ in size."""
        if len({len(site) for site in self.sites}) > 1:
            sizes = ", ".join(f"{site[0].split('/')[0]}: {len(site)}" for site in self.sites)
            raise ScenarioError(f"paradigm: hitopk needs equally many workers in every data centre ({sizes})")
        number = self.site_of(name).index(name)
        return tuple(site[number] for site in self.sites)


def segments_of(plan: Plan, ranks: Ranks, elements: int) -> int:
    """Return into how many pieces a chunk is cut so that hops overlap: they hide a WAN's delay, and cost messages."""
    if len(ranks.sites) == 1 or not plan.has_wan:
        return 1
    chunk_bytes = ELEMENT_BYTES * elements // len(ranks.names)
    return min(MOST_SEGMENTS, max(1, chunk_bytes // PIECE_BYTES))


@once_per_plan
def ranks_of(plan: Plan, present: tuple[str, ...] | None = None) -> Ranks:
    """Return all training workers, or those ``present``: data centres, and workers in each, in the Plan's order."""
    by_site: dict[str, list[str]] = {}
    for worker in plan.training_workers:
        if present is None or worker.name in present:
            by_site.setdefault(worker.data_center, []).append(worker.name)
    sites = tuple(map(tuple, by_site.values()))
    return Ranks(tuple(worker for site in sites for worker in site), sites)
