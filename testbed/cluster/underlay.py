"""What the network between the machines of an emulated run has to carry, and the refusal of runs that it cannot. Pure.

Tunnels between machines share this network, the underlay. A link needs its highest rate, with the headers of a tunnel,
and may have no less delay than the underlay has: what that adds is subtracted from the emulated delay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from emulation.division import FULL_MTU_BYTES, OVERHEAD_BYTES, mtu_within
from emulation.measurement import rtt_tolerance_s
from testbed.errors import NetworkMismatch
from testbed.ids import data_center_of
from testbed.plan.model import LinkPlan, Plan
from testbed.plan.shaping import FRAME_BYTES
from testbed.policy.overlay import OVERLAYS

Pair = tuple[str, str]
LEAST_MTU_BYTES = 576 + OVERHEAD_BYTES  # RFC 791: what every host takes
_TUNNEL_SHARE = (FRAME_BYTES + OVERHEAD_BYTES) / FRAME_BYTES
_LARGER_MTU = (
    f"a larger MTU on the machines' interfaces (`ip link set INTERFACE mtu {FULL_MTU_BYTES + OVERHEAD_BYTES}`, or 9000)"
)
_CURE_PLACE = "put both on one machine (cluster.data_centers.NAME.label, or fewer cluster.machines)"


@dataclass(frozen=True, slots=True)
class UnderlayPath:
    """What was measured from one machine to another: least round trip, payload of a TCP connection, MTU."""

    rtt_s: float
    rate_bps: float
    mtu_bytes: int

    @property
    def delay_s(self) -> float:
        """One way, taken to be half of the round trip: no clock can tell."""
        return self.rtt_s / 2


def crossing(plan: Plan, machines: Mapping[str, str]) -> dict[Pair, list[LinkPlan]]:
    """Return the links between different machines, by the machines that send and receive.

    machines  of every data centre and router
    """
    found: defaultdict[Pair, list[LinkPlan]] = defaultdict(list)
    for link in plan.network.links:
        pair = machines[link.source], machines[link.target]
        if pair[0] != pair[1]:
            found[pair].append(link)
    return dict(found)


def mtu_bytes(paths: Iterable[UnderlayPath]) -> int:
    """Return the MTU of the emulated network. Raise ``NetworkMismatch`` if the underlay's is too small for any."""
    least = min((path.mtu_bytes for path in paths), default=FULL_MTU_BYTES + OVERHEAD_BYTES)
    if least < LEAST_MTU_BYTES:
        raise NetworkMismatch(f"the machines' network carries packets of {least} bytes; tunnels need {LEAST_MTU_BYTES}")
    return mtu_within(least)


def mtu_warning(emulated_bytes: int) -> str:
    """Return what a user should know of the emulated network's MTU; empty if it is that of an Ethernet."""
    if emulated_bytes == FULL_MTU_BYTES:
        return ""
    return (
        f"the machines' network carries no packets of {FULL_MTU_BYTES + OVERHEAD_BYTES} bytes, so that the emulated "
        f"one has an MTU of {emulated_bytes} instead of {FULL_MTU_BYTES}; cure: {_LARGER_MTU}"
    )


def refuse_uncarried(plan: Plan, machines: Mapping[str, str], paths: Mapping[Pair, UnderlayPath]) -> None:
    """Raise ``NetworkMismatch`` that names every link, and pair of machines, for which the underlay does not do."""
    links = crossing(plan, machines)
    problems = [
        *(problem for pair in links for link in links[pair] for problem in _problems(link, pair, paths[pair])),
        *_sums(links, paths, _used(plan)),
    ]
    if plan.transport.best_effort_channels and (most := mtu_bytes(paths.values())) < FULL_MTU_BYTES:
        problems.append(
            f"order: best-effort datagrams are packets of {FULL_MTU_BYTES} bytes, and the emulated network has an MTU "
            f"of {most}; use another order, or {_LARGER_MTU}"
        )
    if problems:
        raise NetworkMismatch("the machines' network cannot carry the emulated one:\n  " + "\n  ".join(problems))


def _problems(link: LinkPlan, pair: Pair, path: UnderlayPath) -> Iterator[str]:
    between = f"from {pair[0]} to {pair[1]}"
    least_s = min((link.delay_s, *(link.delay_trace.values if link.delay_trace else ()))) - link.jitter_s
    if path.delay_s - least_s > rtt_tolerance_s(2 * least_s) / 2:
        yield (
            f"link {link.name}: has a delay of {least_s * 1e3:.3g} ms, and it takes {path.delay_s * 1e3:.3g} ms "
            f"{between}; {_CURE_PLACE}, or write a longer delay"
        )
    if (need := _rate_bps(link)) > path.rate_bps:
        yield (
            f"link {link.name}: needs {need / 1e6:.4g} Mbit/s with tunnel headers, and {between} there are "
            f"{path.rate_bps / 1e6:.4g} Mbit/s; {_CURE_PLACE}, or write a lower rate (topology.scale)"
        )


def _rate_bps(link: LinkPlan) -> float:
    return max((link.rate_bps, *(link.rate_trace.values if link.rate_trace else ()))) * _TUNNEL_SHARE


def _used(plan: Plan) -> frozenset[str]:
    """Return the links that traffic can be on: of the paths between a node and its parents; if members relay, all."""
    network = plan.network
    pairs = {(node.data_center, data_center_of(parent)) for node in plan.nodes for parent in node.parents}
    if not pairs or OVERLAYS[plan.technique.overlay_tier2.kind].relays:
        return frozenset(link.name for link in network.links)
    pairs |= {(other, one) for one, other in pairs} | {(each.source, each.target) for each in plan.background}
    pairs |= {(each.target, each.source) for each in plan.background}
    return frozenset(name for one, other in pairs for name in network.routes.get(f"{one}>{other}", ()))


def _sums(
    links: Mapping[Pair, list[LinkPlan]], paths: Mapping[Pair, UnderlayPath], used: frozenset[str]
) -> Iterator[str]:
    """Yield pairs of machines, and machines, whose links together need more than was measured."""
    need = {pair: sum(_rate_bps(link) for link in links[pair] if link.name in used) for pair in links}
    groups = {f"from {one} to {other}": [(one, other)] for one, other in links}
    for machine in sorted({name for pair in links for name in pair}):
        groups[f"that leave {machine}"] = [pair for pair in links if pair[0] == machine]
        groups[f"that reach {machine}"] = [pair for pair in links if pair[1] == machine]
    for which, pairs in groups.items():
        total, there = sum(need[pair] for pair in pairs), max((paths[pair].rate_bps for pair in pairs), default=0.0)
        if total > there and sum(len(links[pair]) for pair in pairs) > 1:
            yield (
                f"links {which}: together need {total / 1e6:.4g} Mbit/s with tunnel headers, and there are "
                f"{there / 1e6:.4g} Mbit/s; use fewer machines, place data centres otherwise, or write lower rates"
            )
