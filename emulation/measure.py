"""Before training: does every link and path do what the Plan says? Each is measured; nothing is taken on trust.

Tolerances follow what a busy machine can measure in a second: 1 ms + 2 % of a round trip (median), 2 % of a rate.
Outside them a value is measured again, then the run is marked; far outside them it does not start.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from emulation.flood import Flood, flood
from emulation.layout import SwitchPort
from emulation.ping import Pair, ping
from testbed.errors import NetworkMismatch, RunFailed
from testbed.plan.model import LinkPlan

if TYPE_CHECKING:
    from emulation.network import Emulation

PINGS = 20
REPEATS = 2  # of what is outside its tolerance
PING_INTERVAL_S = 0.01
CONTACT_DEADLINE_S = 10.0
RATE_TOLERANCE = 0.02
FAR_OUTSIDE = 10.0  # in tolerances: a fifth of a rate
FLOOD_S = 0.4
FLOOD_CEILING_BPS = 150e6  # what may be flooded at a time without the flood measuring the processor


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value against the Plan. ``what`` is ``rtt`` (seconds, median) or ``rate`` (bits per second)."""

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


def rtt_tolerance_s(planned_s: float) -> float:
    return 1e-3 + 0.02 * planned_s


def first_contact(net: Emulation) -> None:
    """One answered echo from a node of each site to one of each other site, and from each node to its gateway.

    ``RunFailed`` names the pairs that stay silent.
    """
    waiting = [*_path_pairs(net), *_lan_pairs(net)]
    deadline = time.monotonic() + CONTACT_DEADLINE_S
    wait_s = 0.05 + max((planned for _, planned in _path_plans(net)), default=0.0) * 1.2
    while waiting and time.monotonic() < deadline:
        ping(waiting, 1, 0.0, wait_s)
        waiting = [pair for pair in waiting if not pair.rtts_s]
    if waiting:
        raise RunFailed(f"no answer within {CONTACT_DEADLINE_S:g} s on {', '.join(pair.name for pair in waiting[:5])}")


def measure(net: Emulation, record: Callable[..., None], budget_s: float) -> list[Measurement]:
    """Round trips of all links and paths, rates of as many links as fit the budget (one of each rate first)."""
    results = _repeatedly(lambda chosen: _measure_rtts(net, chosen))
    results += _measure_all_rates(net, budget_s)
    for each in results:
        record("measured", ok=each.ok, **asdict(each))
        if not each.ok:
            record("warning", message=describe(each))
    far = [describe(each) for each in results if each.off_by > FAR_OUTSIDE]
    if far:
        raise NetworkMismatch("the emulated network is not the Plan's:\n  " + "\n  ".join(far))
    return results


def describe(each: Measurement) -> str:
    """One sentence for people."""
    scale, unit = (1e3, "ms") if each.what == "rtt" else (1e-6, "Mbit/s")
    seen = "nothing" if each.measured is None else f"{each.measured * scale:.2f} {unit}"
    name = {"rtt": "round trip", "rate": "rate"}[each.what]
    planned, tolerance = f"{each.planned * scale:.2f} {unit}", f"{each.tolerance * scale:.2f}"
    return f"{each.link}: {name} planned {planned}, measured {seen} (± {tolerance})"


def _repeatedly(measure_some: Callable[[set[str] | None], list[Measurement]]) -> list[Measurement]:
    """Measure; what is outside its tolerance again, and keep the better: a busy moment is not a wrong link."""
    first = {each.link: each for each in measure_some(None)}
    for _ in range(REPEATS):
        bad = {name for name, each in first.items() if not each.ok}
        if not bad:
            break
        for again in measure_some(bad):
            first[again.link] = min(first[again.link], again, key=lambda each: each.off_by)
    return list(first.values())


# -- round trips ----------------------------------------------------------------------------------------------------


def _measure_rtts(net: Emulation, chosen: set[str] | None) -> list[Measurement]:
    planned = dict(_link_plans(net)) | dict(_path_plans(net)) | dict(_lan_plans(net))
    pairs = [
        pair
        for pair in (*_link_pairs(net), *_path_pairs(net), *_lan_echoes(net))
        if chosen is None or pair.name in chosen
    ]
    lossy = any(link.lost for link in net.plan.network.links)
    slowest_s = max((planned[pair.name] for pair in pairs), default=0.0)
    with net.measuring():
        ping(pairs, PINGS * (3 if lossy else 1), PING_INTERVAL_S, slowest_s * 1.5 + 0.1)
    return [_rtt(pair, planned[pair.name]) for pair in pairs]


def _rtt(pair: Pair, planned_s: float) -> Measurement:
    values = sorted(pair.rtts_s)
    median = statistics.median(values) if values else None
    p99 = values[min(len(values) - 1, int(len(values) * 0.99))] if values else None
    return Measurement(pair.name, "rtt", planned_s, median, rtt_tolerance_s(planned_s), p99)


def _echo_s(links: Sequence[LinkPlan], frame_bytes: int = 90) -> float:
    """Propagation and serialisation of one small frame over ``links``."""
    return sum(link.delay_s + frame_bytes * 8 / link.rate_bps for link in links)


def _link_plans(net: Emulation) -> list[tuple[str, float]]:
    plans = {(link.source, link.target): link for link in net.plan.network.links}
    return [(link.name, _echo_s([link, plans[link.target, link.source]])) for link in net.plan.network.links]


def _link_pairs(net: Emulation) -> list[Pair]:
    return [Pair(link.plan.name, net.namespace_path(link.egress.vertex), link.ingress.ip) for link in net.layout.wan]


def _path_plans(net: Emulation) -> list[tuple[str, float]]:
    """Paths of more than one link; the others are measured as links."""
    plans = {link.name: link for link in net.plan.network.links}
    routes = net.plan.network.routes
    lans = {site.name: 2 * site.lan_delay_s for site in net.plan.network.sites}
    found = []
    for name, path in routes.items():
        source, target = name.split(">")
        back = routes.get(f"{target}>{source}", ())
        wan_s = _echo_s([plans[each] for each in (*path, *back)])
        found.append((f"path {name}", wan_s + lans[source] + lans[target]))
    return found


def _path_pairs(net: Emulation) -> list[Pair]:
    first: dict[str, tuple[str, SwitchPort]] = {}
    for node, port in net.layout.hosts.items():
        first.setdefault(node.split("/")[0], (node, port))
    pairs = []
    for name in net.plan.network.routes:
        source, target = name.split(">")
        if source in first and target in first:
            pairs.append(Pair(f"path {name}", net.namespace_path(first[source][0]), first[target][1].ip))
    return pairs


def _lan_plans(net: Emulation) -> list[tuple[str, float]]:
    """One echo from a node to its gateway for each data centre."""
    return [(f"lan {site.name}", 2 * site.lan_delay_s) for site in net.plan.network.sites]


def _lan_echoes(net: Emulation) -> list[Pair]:
    firsts = {node.split("/")[0]: node for node in reversed(net.layout.hosts)}
    return [
        Pair(f"lan {site}", net.namespace_path(node), net.layout.gateways[site].ip) for site, node in firsts.items()
    ]


def _lan_pairs(net: Emulation) -> list[Pair]:
    return [
        Pair(f"{node} to its gateway", net.namespace_path(node), net.layout.gateways[node.split("/")[0]].ip)
        for node in net.layout.hosts
    ]


# -- rates ----------------------------------------------------------------------------------------------------------


def _measure_all_rates(net: Emulation, budget_s: float) -> list[Measurement]:
    deadline = time.monotonic() + budget_s
    results: list[Measurement] = []
    for group in _groups(net):
        if results and time.monotonic() > deadline:
            break
        names = {flood.name for flood in group}
        results += _repeatedly(lambda chosen, names=names: _measure_rates(net, names if chosen is None else chosen))  # type: ignore[misc]
    return results


def _floods(net: Emulation, names: set[str] | None) -> list[Flood]:
    return [
        Flood(
            link.plan.name, net.namespace_path(link.egress.vertex), net.namespace_path(link.ingress.vertex),
            link.ingress.ip, link.plan.rate_bps,
        )
        for link in net.layout.wan
        if names is None or link.plan.name in names
    ]  # fmt: skip


def _groups(net: Emulation) -> list[list[Flood]]:
    """Links to be flooded together: one link of each rate comes first, and a group's rates have a ceiling."""
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


def _measure_rates(net: Emulation, names: set[str]) -> list[Measurement]:
    floods = _floods(net, names)
    plans = {link.name: link for link in net.plan.network.links}
    duration_s = max(each.duration_s(FLOOD_S) for each in floods)
    drain_s = 0.02 + max(plans[each.name].delay_s + 0.12 * duration_s for each in floods)
    with net.measuring():  # or it would measure the processor
        flood(floods, duration_s, drain_s)
    return [_rate(each, plans[each.name]) for each in floods]


def _rate(each: Flood, plan: LinkPlan) -> Measurement:
    lost = plan.lost
    planned = plan.rate_bps * (1 - lost)
    tolerance = planned * (RATE_TOLERANCE + (3 * (lost / max(len(each.stamps_s), 1)) ** 0.5 if lost else 0.0))
    return Measurement(each.name, "rate", planned, each.measured_bps(), tolerance)
