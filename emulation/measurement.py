"""Measured values of an emulated network, compared with the plan: round-trip times by echoes, rates by UDP floods.

The planned time of one echo is the sum of the delays there and back, without queueing. Its tolerance, 1 ms + 2 %, is
the deviation that a busy host measures for the median of ``PINGS`` echoes. The tolerance of a rate is 2 % of what a
link carries; with loss, it also covers three standard deviations of the number of lost frames, 3 sqrt(loss / n).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from emulation.bulk import Flood, NodeAddresses, transfer
from emulation.layout import Layout, SwitchPort
from emulation.ping import Pair, ping
from testbed.errors import NetworkMismatch, RunFailed
from testbed.plan.model import LinkPlan, NetworkPlan, Plan
from testbed.plan.shaping import shaped_bps

REPEATS = 2  # how often a value outside its tolerance is measured again
FAR_OUTSIDE = 10.0  # in tolerances
PINGS = 20
PING_INTERVAL_S = 0.01
CONTACT_DEADLINE_S = 10.0
ALL_PAIRS_LIMIT = 64  # sites
RATE_TOLERANCE = 0.02
FLOOD_S = 0.4
FLOOD_CEILING_BPS = 150e6  # of the links flooded at one time: a faster flood measures the processor


class BuiltNetwork(NodeAddresses, Protocol):
    """The part of ``emulation.network.Emulation`` that measurements use."""

    plan: Plan
    layout: Layout

    def measuring(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """``what`` is ``rtt`` (median, in seconds) or ``rate`` (bits per second). ``measured``: None if nothing arrived."""

    link: str
    what: str
    planned: float
    measured: float | None
    tolerance: float
    p99: float | None = None

    @property
    def off_by(self) -> float:
        """Distance from the plan in tolerances; infinite if nothing arrived."""
        return abs(self.measured - self.planned) / self.tolerance if self.measured is not None else float("inf")

    @property
    def ok(self) -> bool:
        return self.off_by <= 1.0


def describe(each: Measurement) -> str:
    """Return the measurement as a sentence."""
    scale, unit = (1e3, "ms") if each.what == "rtt" else (1e-6, "Mbit/s")
    measured = "nothing" if each.measured is None else f"{each.measured * scale:.2f} {unit}"
    name = {"rtt": "round-trip time", "rate": "rate"}[each.what]
    planned = f"{each.planned * scale:.2f} {unit}"
    tolerance = f"{each.tolerance * scale:.2f}"
    return f"{each.link}: {name} planned {planned}, measured {measured} (± {tolerance})"


def judge(results: Sequence[Measurement], record: Callable[..., None]) -> None:
    """Record each value, and a warning for those outside their tolerance.

    Raise ``NetworkMismatch`` if one is off by more than ``FAR_OUTSIDE`` tolerances, a fifth of a rate.
    """
    for each in results:
        record("measured", ok=each.ok, **asdict(each))
        if not each.ok:
            record("warning", message=describe(each))
    far = [describe(each) for each in results if each.off_by > FAR_OUTSIDE]
    if far:
        raise NetworkMismatch("the emulated network differs from the plan:\n  " + "\n  ".join(far))


def repeated(names: set[str], measure: Callable[[set[str]], list[Measurement]]) -> list[Measurement]:
    """Measure the links or paths ``names``; repeat those outside their tolerance, up to ``REPEATS`` times.

    The better value counts, as a busy moment of the host is not a property of a link.
    """
    best = {each.link: each for each in measure(names)}
    for _ in range(REPEATS):
        outside = {name for name, each in best.items() if not each.ok}
        if not outside:
            break
        for again in measure(outside):
            best[again.link] = min(best[again.link], again, key=lambda each: each.off_by)
    return list(best.values())


# -- round-trip times -----------------------------------------------------------------------------------------------


def rtt_tolerance_s(planned_s: float) -> float:
    """Return the tolerance: 1 ms + 2 % of the plan."""
    return 1e-3 + 0.02 * planned_s


def first_contact(net: BuiltNetwork) -> None:
    """Wait for one answered echo from each site to each other site, and from each node to its gateway.

    Raise ``RunFailed`` with the pairs that stay silent.
    """
    waiting = [*_path_pairs(net), *_gateway_pairs(net)]
    deadline = time.monotonic() + CONTACT_DEADLINE_S
    wait_s = 0.05 + max(_path_rtts_s(net).values(), default=0.0) * 1.2
    while waiting and time.monotonic() < deadline:
        ping(waiting, 1, 0.0, wait_s)
        waiting = [pair for pair in waiting if not pair.rtts_s]
    if waiting:
        raise RunFailed(f"no answer within {CONTACT_DEADLINE_S:g} s on {', '.join(pair.name for pair in waiting[:5])}")


def measure_rtts(net: BuiltNetwork) -> list[Measurement]:
    """Measure all links, all paths between sites, and one node of each LAN."""
    lans_s = {f"lan {site.name}": 2 * site.lan_delay_s for site in net.plan.network.sites}
    planned_s = _link_rtts_s(net) | _path_rtts_s(net) | lans_s
    return repeated(set(planned_s), partial(_measure_rtts, net, planned_s))


def _measure_rtts(net: BuiltNetwork, planned_s: dict[str, float], names: set[str]) -> list[Measurement]:
    everything = (*_link_pairs(net), *_path_pairs(net), *_lan_pairs(net))
    pairs = [pair for pair in everything if pair.name in names]
    lossy = any(link.lost for link in net.plan.network.links)
    slowest_s = max((planned_s[pair.name] for pair in pairs), default=0.0)
    with net.measuring():
        ping(pairs, PINGS * (3 if lossy else 1), PING_INTERVAL_S, slowest_s * 1.5 + 0.1)
    return [_rtt(pair, planned_s[pair.name]) for pair in pairs]


def _rtt(pair: Pair, planned_s: float) -> Measurement:
    values = sorted(pair.rtts_s)
    median = statistics.median(values) if values else None
    p99 = values[min(len(values) - 1, int(len(values) * 0.99))] if values else None
    return Measurement(pair.name, "rtt", planned_s, median, rtt_tolerance_s(planned_s), p99)


def _one_way_s(links: Sequence[LinkPlan]) -> float:
    """Return the time of a small frame over ``links``, whose shapers send it at once, as part of their burst."""
    return sum(link.delay_s for link in links)


def _link_rtts_s(net: BuiltNetwork) -> dict[str, float]:
    plans = {(link.source, link.target): link for link in net.plan.network.links}
    return {link.name: _one_way_s([link, plans[link.target, link.source]]) for link in net.plan.network.links}


def _link_pairs(net: BuiltNetwork) -> list[Pair]:
    return [Pair(link.plan.name, net.namespace_path(link.egress.vertex), link.ingress.ip) for link in net.layout.wan]


def _measured_routes(network: NetworkPlan) -> dict[str, tuple[str, ...]]:
    """Return the routes between all sites or, if many sites would take minutes, only those with the central site."""
    if len(network.sites) <= ALL_PAIRS_LIMIT:
        return network.routes
    central = next(site.name for site in network.sites if site.central)
    return {name: path for name, path in network.routes.items() if central in name.split(">")}


def _path_rtts_s(net: BuiltNetwork) -> dict[str, float]:
    plans = {link.name: link for link in net.plan.network.links}
    routes = _measured_routes(net.plan.network)
    lans_s = {site.name: 2 * site.lan_delay_s for site in net.plan.network.sites}
    found = {}
    for name, path in routes.items():
        source, target = name.split(">")
        back = routes.get(f"{target}>{source}", ())
        found[f"path {name}"] = _one_way_s([plans[each] for each in (*path, *back)]) + lans_s[source] + lans_s[target]
    return found


def _first_nodes(net: BuiltNetwork) -> dict[str, tuple[str, SwitchPort]]:
    """Return the first node of each site, and its port."""
    return {name.split("/")[0]: (name, port) for name, port in reversed(net.layout.hosts.items())}


def _path_pairs(net: BuiltNetwork) -> list[Pair]:
    first = _first_nodes(net)
    pairs = []
    for name in _measured_routes(net.plan.network):
        source, target = name.split(">")
        if source in first and target in first:
            pairs.append(Pair(f"path {name}", net.namespace_path(first[source][0]), first[target][1].ip))
    return pairs


def _lan_pairs(net: BuiltNetwork) -> list[Pair]:
    first = _first_nodes(net)
    return [
        Pair(f"lan {site}", net.namespace_path(node), net.layout.gateways[site].ip) for site, (node, _) in first.items()
    ]


def _gateway_pairs(net: BuiltNetwork) -> list[Pair]:
    return [
        Pair(f"{node} to its gateway", net.namespace_path(node), net.layout.gateways[node.split("/")[0]].ip)
        for node in net.layout.hosts
    ]


# -- rates ----------------------------------------------------------------------------------------------------------


def measure_rates(net: BuiltNetwork, budget_s: float) -> list[Measurement]:
    """Measure as many links as fit into ``budget_s`` seconds, one link of each rate first."""
    deadline = time.monotonic() + budget_s
    results: list[Measurement] = []
    for group in flood_groups([link.plan for link in net.layout.wan]):
        if results and time.monotonic() > deadline:
            break
        results += repeated({link.name for link in group}, partial(measure_together, net))
    return results


def flood_groups(links: Sequence[LinkPlan]) -> list[list[LinkPlan]]:
    """Return the links to flood together, within ``FLOOD_CEILING_BPS``; one link of each rate comes first."""
    firsts: dict[float, LinkPlan] = {}
    for link in links:
        firsts.setdefault(link.rate_bps, link)
    others = [link for link in links if firsts[link.rate_bps] is not link]
    groups: list[list[LinkPlan]] = []
    for link in (*firsts.values(), *others):
        if not groups or sum(other.rate_bps for other in groups[-1]) + link.rate_bps > FLOOD_CEILING_BPS:
            groups.append([])
        groups[-1].append(link)
    return groups


def measure_together(net: BuiltNetwork, names: set[str]) -> list[Measurement]:
    """Flood links at the same time."""
    floods = _floods(net, names)
    plans = {link.name: link for link in net.plan.network.links}
    duration_s = max(each.duration_s(least_s(net, each.rate_bps)) for each in floods)
    # the flood is a tenth too fast, so a tenth of its duration waits in the queue at its end
    drain_s = 0.02 + max(plans[each.name].delay_s + 0.12 * duration_s for each in floods)
    with net.measuring():
        transfer(floods, duration_s, drain_s)
    return [_rate(each, plans[each.name]) for each in floods]


def _floods(net: BuiltNetwork, names: set[str]) -> list[Flood]:
    """Return the floods of the named links."""
    return [
        Flood(
            link.plan.name,
            net.namespace_path(link.egress.vertex),
            net.namespace_path(link.ingress.vertex),
            link.ingress.ip,
            shaped_bps(link.plan.rate_bps),
        )
        for link in net.layout.wan
        if link.plan.name in names
    ]


def least_s(net: BuiltNetwork, rate_bps: float) -> float:
    """Return how long to flood a link. In virtual time, no packet is late: a fast link needs no more of them."""
    return FLOOD_S * min(1.0, FLOOD_CEILING_BPS / rate_bps) if net.plan.is_exact else FLOOD_S


def _rate(each: Flood, plan: LinkPlan) -> Measurement:
    lost = plan.lost
    planned = shaped_bps(plan.rate_bps) * (1 - lost)
    tolerance = planned * (RATE_TOLERANCE + (3 * (lost / max(len(each.stamps_s), 1)) ** 0.5 if lost else 0.0))
    return Measurement(each.name, "rate", planned, each.measured_bps(), tolerance)
