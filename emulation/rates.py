"""Rates of an emulated network's links against the plan, by short UDP floods.

The tolerance is 2 % of what a link carries; with loss, it also covers three standard deviations of the number of lost
frames, 3 sqrt(loss / n).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from emulation.flood import Flood, flood
from emulation.measurement import BuiltNetwork, Measurement, repeated
from testbed.plan.model import LinkPlan
from testbed.plan.shaping import shaped_bps

RATE_TOLERANCE = 0.02
FLOOD_S = 0.4
FLOOD_CEILING_BPS = 150e6  # of the links flooded at one time: a faster flood measures the processor
ETHERNET_BYTES = 14


class _HasRate(Protocol):
    @property
    def rate_bps(self) -> float: ...


Rated = TypeVar("Rated", bound=_HasRate)


def measure_rates(net: BuiltNetwork, budget_s: float) -> list[Measurement]:
    """Measure as many links as fit into ``budget_s`` seconds, one link of each rate first."""
    deadline = time.monotonic() + budget_s
    results: list[Measurement] = []
    for group in flood_groups(_floods(net, None)):
        if results and time.monotonic() > deadline:
            break
        names = {flood.name for flood in group}
        results += repeated(lambda chosen, names=names: _measure(net, names if chosen is None else chosen))  # type: ignore[misc]
    return results


def _floods(net: BuiltNetwork, names: set[str] | None) -> list[Flood]:
    """Return the floods of links with both ends here, or of those in ``names``, of which one end may be elsewhere."""
    here = set(net.layout.vertices)

    def path(vertex: str) -> str:
        return net.namespace_path(vertex) if vertex in here else ""

    return [
        Flood(
            link.plan.name, path(link.egress.vertex), path(link.ingress.vertex), link.ingress.ip,
            shaped_bps(link.plan.rate_bps), net.mtu_bytes + ETHERNET_BYTES,
        )
        for link in net.layout.wan
        if ({link.egress.vertex, link.ingress.vertex} <= here if names is None else link.plan.name in names)
    ]  # fmt: skip


def flood_groups(
    floods: Sequence[Rated], kind: Callable[[Rated], object] = lambda each: each.rate_bps
) -> list[list[Rated]]:
    """Return the links to flood together, within ``FLOOD_CEILING_BPS``; one link of each ``kind`` comes first."""
    seen: set[object] = set()
    firsts: list[Rated] = []
    others: list[Rated] = []
    for each in floods:
        (others if kind(each) in seen else firsts).append(each)
        seen.add(kind(each))
    groups: list[list[Rated]] = []
    for each in (*firsts, *others):
        if not groups or sum(other.rate_bps for other in groups[-1]) + each.rate_bps > FLOOD_CEILING_BPS:
            groups.append([])
        groups[-1].append(each)
    return groups


def measure_together(net: BuiltNetwork, names: set[str], wait_s: float) -> list[Measurement]:
    """Flood links with another machine, which does the same at this time; return those that end here.

    ``wait_s``: how long after the planned end to receive, as that machine may begin later.
    """
    return [] if not names else _measure(net, names, wait_s)


def _measure(net: BuiltNetwork, names: set[str], wait_s: float = 0.0) -> list[Measurement]:
    floods = _floods(net, names)
    plans = {link.name: link for link in net.plan.network.links}
    duration_s = max(each.duration_s(least_s(net, each.rate_bps)) for each in floods)
    # the flood is a tenth too fast, so a tenth of its duration waits in the queue at its end
    drain_s = 0.02 + wait_s + max(plans[each.name].delay_s + 0.12 * duration_s for each in floods)
    with net.measuring():
        flood(floods, duration_s, drain_s)
    return [_rate(each, plans[each.name]) for each in floods if each.target_namespace]


def least_s(net: BuiltNetwork, rate_bps: float) -> float:
    """Return how long to flood a link. In virtual time, no packet is late: a fast link needs no more of them."""
    return FLOOD_S * min(1.0, FLOOD_CEILING_BPS / rate_bps) if net.plan.back_end == "exact" else FLOOD_S


def _rate(each: Flood, plan: LinkPlan) -> Measurement:
    lost = plan.lost
    planned = shaped_bps(plan.rate_bps) * (1 - lost)
    tolerance = planned * (RATE_TOLERANCE + (3 * (lost / max(len(each.stamps_s), 1)) ** 0.5 if lost else 0.0))
    return Measurement(each.name, "rate", planned, each.measured_bps(), tolerance)
