"""Rates of an emulated network's links against the plan, by short UDP floods.

The tolerance is 2 % of what a link carries; with loss, it also covers three standard deviations of the number of lost
frames, 3 sqrt(loss / n).
"""

from __future__ import annotations

import time

from emulation.flood import Flood, flood
from emulation.measurement import BuiltNetwork, Measurement, repeated
from testbed.plan.model import LinkPlan

RATE_TOLERANCE = 0.02
FLOOD_S = 0.4
FLOOD_CEILING_BPS = 150e6  # of the links flooded at one time: a faster flood measures the processor


def measure_rates(net: BuiltNetwork, budget_s: float) -> list[Measurement]:
    """Measure as many links as fit into ``budget_s`` seconds, one link of each rate first."""
    deadline = time.monotonic() + budget_s
    results: list[Measurement] = []
    for group in _groups(net):
        if results and time.monotonic() > deadline:
            break
        names = {flood.name for flood in group}
        results += repeated(lambda chosen, names=names: _measure(net, names if chosen is None else chosen))  # type: ignore[misc]
    return results


def _floods(net: BuiltNetwork, names: set[str] | None) -> list[Flood]:
    return [
        Flood(
            link.plan.name, net.namespace_path(link.egress.vertex), net.namespace_path(link.ingress.vertex),
            link.ingress.ip, link.plan.rate_bps,
        )
        for link in net.layout.wan
        if names is None or link.plan.name in names
    ]  # fmt: skip


def _groups(net: BuiltNetwork) -> list[list[Flood]]:
    """Return the links to flood together, within ``FLOOD_CEILING_BPS``; one link of each rate comes first."""
    seen: set[float] = set()
    firsts: list[Flood] = []
    others: list[Flood] = []
    for each in _floods(net, None):
        (others if each.rate_bps in seen else firsts).append(each)
        seen.add(each.rate_bps)
    groups: list[list[Flood]] = []
    for each in (*firsts, *others):
        if not groups or sum(other.rate_bps for other in groups[-1]) + each.rate_bps > FLOOD_CEILING_BPS:
            groups.append([])
        groups[-1].append(each)
    return groups


def _measure(net: BuiltNetwork, names: set[str]) -> list[Measurement]:
    floods = _floods(net, names)
    plans = {link.name: link for link in net.plan.network.links}
    duration_s = max(each.duration_s(FLOOD_S) for each in floods)
    # the flood is a tenth too fast, so a tenth of its duration waits in the queue at its end
    drain_s = 0.02 + max(plans[each.name].delay_s + 0.12 * duration_s for each in floods)
    with net.measuring():
        flood(floods, duration_s, drain_s)
    return [_rate(each, plans[each.name]) for each in floods]


def _rate(each: Flood, plan: LinkPlan) -> Measurement:
    lost = plan.lost
    planned = plan.rate_bps * (1 - lost)
    tolerance = planned * (RATE_TOLERANCE + (3 * (lost / max(len(each.stamps_s), 1)) ** 0.5 if lost else 0.0))
    return Measurement(each.name, "rate", planned, each.measured_bps(), tolerance)
