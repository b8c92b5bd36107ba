"""Round-trip times of an emulated network's links, paths and LANs against the plan, by ICMP echoes.

The planned time of one echo is propagation and serialisation of a small frame, there and back, without queueing. The
tolerance, 1 ms + 2 %, is what a busy host measures as the median of ``PINGS`` echoes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from emulation.layout import SwitchPort
from emulation.measurement import BuiltNetwork, Measurement, repeated
from emulation.ping import Pair, ping
from testbed.errors import RunFailed
from testbed.plan.model import LinkPlan, NetworkPlan
from testbed.plan.shaping import shaped_bps

PINGS = 20
PING_INTERVAL_S = 0.01
CONTACT_DEADLINE_S = 10.0
ALL_PAIRS_LIMIT = 64  # sites
_ECHO_FRAME_BYTES = 90  # Ethernet 14, IP 20, ICMP 8, payload 48


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
    """Measure all links, all paths between sites, and one node of each LAN: those that begin on this machine."""
    planned_s = _link_rtts_s(net) | _path_rtts_s(net) | _lan_rtts_s(net)
    return repeated(lambda chosen: _measure(net, planned_s, chosen))


def _measure(net: BuiltNetwork, planned_s: dict[str, float], chosen: set[str] | None) -> list[Measurement]:
    everything = (*_link_pairs(net), *_path_pairs(net), *_lan_pairs(net))
    pairs = [pair for pair in everything if chosen is None or pair.name in chosen]
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
    """Return the time of propagation and serialisation of one small frame over ``links``."""
    return sum(link.delay_s + _ECHO_FRAME_BYTES * 8 / shaped_bps(link.rate_bps) for link in links)


def _link_rtts_s(net: BuiltNetwork) -> dict[str, float]:
    plans = {(link.source, link.target): link for link in net.plan.network.links}
    return {link.name: _one_way_s([link, plans[link.target, link.source]]) for link in net.plan.network.links}


def _link_pairs(net: BuiltNetwork) -> list[Pair]:
    here = set(net.layout.vertices)
    return [
        Pair(link.plan.name, net.namespace_path(link.egress.vertex), link.ingress.ip)
        for link in net.layout.wan
        if link.egress.vertex in here
    ]


def _measured_routes(network: NetworkPlan) -> dict[str, tuple[str, ...]]:
    """Return the routes between all sites. Of very many, whose echoes take minutes: those with the central one."""
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
    """Return the first node of each site, those of other machines included, and its port."""
    return {name.split("/")[0]: (name, port) for name, port in reversed(net.whole.hosts.items())}


def _path_pairs(net: BuiltNetwork) -> list[Pair]:
    first, pairs = _first_nodes(net), []
    for name in _measured_routes(net.plan.network):
        source, target = name.split(">")
        if source in net.layout.gateways and source in first and target in first:
            pairs.append(Pair(f"path {name}", net.namespace_path(first[source][0]), first[target][1].ip))
    return pairs


def _lan_rtts_s(net: BuiltNetwork) -> dict[str, float]:
    return {f"lan {site.name}": 2 * site.lan_delay_s for site in net.plan.network.sites}


def _lan_pairs(net: BuiltNetwork) -> list[Pair]:
    first = _first_nodes(net)
    return [
        Pair(f"lan {site}", net.namespace_path(node), net.layout.gateways[site].ip)
        for site, (node, _) in first.items()
        if site in net.layout.gateways
    ]


def _gateway_pairs(net: BuiltNetwork) -> list[Pair]:
    return [
        Pair(f"{node} to its gateway", net.namespace_path(node), net.layout.gateways[node.split("/")[0]].ip)
        for node in net.layout.hosts
    ]
