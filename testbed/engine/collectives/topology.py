"""Ranks and their groups, from the Plan: which workers take part, in which data centre, in which order around rings."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.policy.collective.ring_order import best_ring
from testbed.policy.collective.schedule import GroupShape


@dataclass(frozen=True, slots=True)
class Ranks:
    """``names`` in rank order; ``sites``: the same, data centre by data centre."""

    names: tuple[str, ...]
    sites: tuple[tuple[str, ...], ...]

    def shape(self, segments: int = 1) -> GroupShape:
        """Return the groups as ranks."""
        groups, first = [], 0
        for site in self.sites:
            groups.append(tuple(range(first, first + len(site))))
            first += len(site)
        return GroupShape(len(self.names), tuple(groups), segments)

    def site_of(self, name: str) -> tuple[str, ...]:
        return next(site for site in self.sites if name in site)

    def inside(self, name: str) -> Ranks:
        site = self.site_of(name)
        return Ranks(site, (site,))

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Return each data centre's worker with the number of ``name``. ``ScenarioError`` if they differ in size."""
        if len({len(site) for site in self.sites}) > 1:
            sizes = ", ".join(f"{site[0].split('/')[0]}: {len(site)}" for site in self.sites)
            raise ScenarioError(f"paradigm: hitopk needs as many workers in every data centre ({sizes})")
        number = self.site_of(name).index(name)
        return tuple(site[number] for site in self.sites)


def ranks_of(plan: Plan, order: str, bucket_bytes: float, present: tuple[str, ...] | None = None) -> Ranks:
    """Return all training workers, or those ``present``.

    order  ``plan``, or ``network``: the best ring of data centres for such buckets

    Every rank of a simulation asks for the same, and it takes long: answers are kept.
    """
    asked = (ranks_of, order, bucket_bytes, present)
    if asked not in plan.memory:
        plan.memory[asked] = _ranks_of(plan, order, bucket_bytes, present)
    ranks: Ranks = plan.memory[asked]
    return ranks


def _ranks_of(plan: Plan, order: str, bucket_bytes: float, present: tuple[str, ...] | None) -> Ranks:
    by_site: dict[str, list[str]] = {}
    for worker in plan.training_workers:
        if present is None or worker.name in present:
            by_site.setdefault(worker.data_center, []).append(worker.name)
    names = list(by_site)
    if order == "network":
        names = [names[index] for index in best_ring(link_times_s(plan, names, bucket_bytes / len(names)))]
    sites = tuple(tuple(by_site[name]) for name in names)
    return Ranks(tuple(worker for site in sites for worker in site), sites)


def link_times_s(plan: Plan, sites: list[str], size_bytes: float) -> list[list[float]]:
    """Return the seconds of a message of that size from each data centre to each other, alone on its path."""
    links = {link.name: link for link in plan.network.links}

    def time_s(source: str, target: str) -> float:
        if source == target:
            return 0.0
        path = [links[name] for name in plan.network.between(source, target)]
        return sum(link.delay_s for link in path) + 8 * size_bytes / min(link.rate_bps for link in path)

    return [[time_s(source, target) for target in sites] for source in sites]
