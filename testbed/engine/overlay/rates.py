"""Planned rates between the nodes of a group, for overlays that use them before anything is measured."""

from __future__ import annotations

from testbed.engine.overlay.group import OverlayGroup
from testbed.plan.model import Plan


def planned_rates(plan: Plan, group: OverlayGroup) -> dict[tuple[int, int], float]:
    """Return bytes per second between ranks (−1: the root) whose data centres are neighbours.

    Routers may lie between neighbours, other data centres may not: those can merge what they pass on, so a path through
    them is a path of the overlay.
    """
    nodes = {rank: plan.node(name) for rank, name in enumerate((group.root, *group.members), start=-1)}
    rates = {}
    for one, here in nodes.items():
        for other, there in nodes.items():
            if one != other and (rate_bps := _rate_bps(plan, here.data_center, there.data_center)) is not None:
                rates[one, other] = rate_bps / 8
    return rates


def _rate_bps(plan: Plan, source: str, target: str) -> float | None:
    """Return the slowest link of the path, LANs included; ``None`` if a third data centre lies on it."""
    lan = min(plan.site(source).lan_rate_bps, plan.site(target).lan_rate_bps)
    if source == target:
        return lan
    links = {link.name: link for link in plan.network.links}
    route = [links[name] for name in plan.network.between(source, target)]
    if any(link.target not in plan.network.routers for link in route[:-1]):
        return None
    return min(lan, *(link.rate_bps for link in route))
