"""Which data centre should be the central one: that with the shortest transfer of the model from the farthest other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.advise.candidates import Read
from testbed.errors import ScenarioError
from testbed.plan.bounds import model_bytes
from testbed.plan.model import Plan

TRIED = 2
"""At most this many other data centres are tried."""


def nearer_centres(plan: Plan) -> list[str]:
    """Return at most ``TRIED`` data centres that would be better central ones, the best first.

    The criterion is the time that the model takes from the farthest other data centre. Empty without servers, as there
    is no central data centre then.
    """
    if not plan.with_role("global_server"):
        return []
    farthest_s = {site.name: max(_ways_s(plan, site.name), default=0.0) for site in plan.network.sites}
    own_s = next(farthest_s[site.name] for site in plan.network.sites if site.central)
    nearer = [name for name, time_s in farthest_s.items() if time_s < own_s]
    return sorted(nearer, key=farthest_s.__getitem__)[:TRIED]


def _ways_s(plan: Plan, centre: str) -> Iterator[float]:
    """Yield how long the model travels from each other data centre to ``centre`` without other traffic (s)."""
    training = plan.training
    size_bytes = model_bytes(training.model, training.data)
    links = {link.name: link for link in plan.network.links}
    for site in plan.network.sites:
        if site.name != centre:
            way = [links[name] for name in plan.network.between(site.name, centre)]
            yield sum(link.delay_s for link in way) + 8 * size_bytes / min(link.rate_bps for link in way)


def settings_with_centre(read: Read, settings: Sequence[str], own: str, centre: str) -> tuple[str, ...]:
    """Return the settings with another central data centre, or unchanged if the scenario does not allow this change.

    own  the scenario's central data centre
    """
    by_list = (f"topology.data_centers[{own}].central=false", f"topology.data_centers[{centre}].central=true")
    for more in (by_list, (f"topology.central={centre}",)):
        try:
            read([*settings, *more], "simulate")
        except ScenarioError:
            continue
        return (*settings, *more)
    return tuple(settings)
