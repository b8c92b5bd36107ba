"""Faults of links and devices, written into the series that every back end follows.

What overlapping ones amount to: ``testbed.plan.effects``. ``testbed.plan.fault_clock`` has the faults that must be
carried out while a run goes on (a process that is killed).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from testbed.plan.effects import LAWS, pieces, worst_loss
from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, NodePlan, Series

# by kind: the trace that a fault changes, and the field with the value that the link has otherwise
_CHANGED = {
    "down": ("state_trace", ""), "rate": ("rate_trace", "rate_bps"), "delay": ("delay_trace", "delay_s"),
    "corrupt": ("corruption_trace", "corruption"), "duplicate": ("duplication_trace", "duplication"),
    "reorder": ("reordering_trace", "reordering"),
}  # fmt: skip
WRITTEN_OUT_S = 6 * 3600.0
MOST_POINTS = 100_000

Law = Callable[[float, Sequence[FaultPlan]], float]
_ByKind = dict[str, list[FaultPlan]]


def with_faults(network: NetworkPlan, faults: Iterable[FaultPlan]) -> NetworkPlan:
    """Return the network with the faults of links in their traces."""
    by_link: defaultdict[str, _ByKind] = defaultdict(lambda: defaultdict(list))
    for fault in faults:
        for name in fault.targets if fault.kind in _CHANGED or fault.kind == "loss" else ():
            by_link[name][fault.kind].append(fault)
    links = (_hit(link, by_link[link.name]) if link.name in by_link else link for link in network.links)
    return replace(network, links=tuple(links))


def _hit(link: LinkPlan, faults: _ByKind) -> LinkPlan:
    traces: dict[str, Series | None] = {}
    for kind, (trace, field) in _CHANGED.items():
        base, usual = getattr(link, trace), getattr(link, field) if field else 1.0
        traces[trace] = overlaid(base, usual, faults.get(kind, ()), _law(kind))
    own_burst, losses = link.loss_burst_packets, faults.get("loss", ())

    def worst(own: float, active: Sequence[FaultPlan]) -> tuple[float, float]:
        return worst_loss((own, own_burst), [(fault.value, fault.burst or own_burst) for fault in active])

    traces["loss_trace"] = overlaid(link.loss_trace, link.loss, losses, lambda own, active: worst(own, active)[0])
    bursts = overlaid(link.loss_trace, link.loss, losses, lambda own, active: worst(own, active)[1], own_burst)
    traces["burst_trace"] = bursts
    changed: dict[str, Any] = {name: series for name, series in traces.items() if series is not None}
    return replace(link, **changed)


def _law(kind: str) -> Law:
    return lambda own, active: LAWS[kind](own, [fault.value for fault in active])


def slowed(nodes: tuple[NodePlan, ...], faults: Iterable[FaultPlan]) -> tuple[NodePlan, ...]:
    """Return the nodes with the faults of devices in their slowdowns."""
    by_node: defaultdict[str, list[FaultPlan]] = defaultdict(list)
    for fault in faults:
        for name in fault.targets if fault.kind == "slow" else ():
            by_node[name].append(fault)
    return tuple(_slowed(node, by_node[node.name]) if node.name in by_node else node for node in nodes)


def _slowed(node: NodePlan, faults: list[FaultPlan]) -> NodePlan:
    return replace(
        node, device=replace(node.device, slowdown=overlaid(node.device.slowdown, 1.0, faults, _law("slow")))
    )


def overlaid(
    base: Series | None, usual: float, faults: Sequence[FaultPlan], law: Law, without: float | None = None
) -> Series | None:
    """Return ``base`` (``usual``, if there is none) with ``faults`` by ``law``; ``base`` itself if they change nothing.

    ``without``: the value that ``law`` has where no fault is active, if that is not the base's. A periodic series is
    written out for at least six hours after the last fault (but at most 100 000 points); then its last value stays.
    """
    own = base or Series(times_s=(0.0,), values=(usual,))
    values = set(own.values)
    faults = [fault for fault in faults if any(law(value, [fault]) != _or(without, value) for value in values)]
    last_s = max((_last_s(fault) for fault in faults), default=0.0)
    found = [
        (time_s, law(value, active), _or(without, value))
        for time_s, value, active in pieces(_written_out(own, last_s), faults)
    ]
    if all(value == undisturbed for _, value, undisturbed in found):
        return base if without is None else None
    kept = [i for i in range(len(found)) if i == 0 or found[i][1] != found[i - 1][1]]
    sources = dict.fromkeys((own.source, *(fault.kind for fault in faults)))
    return Series(
        times_s=tuple(found[i][0] for i in kept), values=tuple(found[i][1] for i in kept),
        source=" and ".join(filter(None, sources)),
    )  # fmt: skip


def _last_s(fault: FaultPlan) -> float:
    assert fault.at_s is not None, "a link's fault, and that of a device, happens at a time"
    return fault.at_s + (fault.for_s if math.isfinite(fault.for_s) else 0.0)


def _or(without: float | None, value: float) -> float:
    return value if without is None else without


def _written_out(base: Series, until_s: float) -> Series:
    """Return the series without a period."""
    if not math.isfinite(base.period_s):
        return base
    whole_s = WRITTEN_OUT_S * (math.ceil(until_s / WRITTEN_OUT_S) + 1)  # the same for faults in several parts
    needed = math.floor(whole_s / base.period_s) + 1
    laps = max(1, min(needed, MOST_POINTS // len(base.times_s)))
    times = tuple(lap * base.period_s + time_s for lap in range(laps) for time_s in base.times_s)
    return Series(times_s=times, values=base.values * laps, source=base.source)
