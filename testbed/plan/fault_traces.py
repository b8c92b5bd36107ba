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

from testbed.errors import ScenarioError
from testbed.plan.effects import LAWS, pieces, worst_loss
from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, NodePlan, Series

# by kind: the trace that a fault changes, and the field with the value that the link has otherwise
_CHANGED = {
    "down": ("state_trace", ""), "rate": ("rate_trace", "rate_bps"), "delay": ("delay_trace", "delay_s"),
    "corrupt": ("corruption_trace", "corruption"), "duplicate": ("duplication_trace", "duplication"),
    "reorder": ("reordering_trace", "reordering"),
}  # fmt: skip
MOST_POINTS = 1_000_000

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

    ``without``: the value that ``law`` has where no fault is active, if that is not the base's. A series that repeats
    is written out until the last fault has ended (those for good: has begun), and repeats from then on.
    Raise ``ScenarioError`` if that takes too many points.
    """
    own = base or Series(times_s=(0.0,), values=(usual,))
    values = set(own.values)
    faults = [fault for fault in faults if any(law(value, [fault]) != _or(without, value) for value in values)]
    last_s = max((_last_s(fault) for fault in faults), default=0.0)
    written_out = _written_out(own, last_s)
    found = [(time_s, law(value, active), _or(without, value)) for time_s, value, active in pieces(written_out, faults)]
    if all(value == undisturbed for _, value, undisturbed in found):
        return base if without is None else None
    kept = [i for i in range(len(found)) if i == 0 or found[i][1] != found[i - 1][1]]
    changes = own.repeats and found[kept[-1]][0] > written_out.repeats_from_s  # in the part that repeats
    sources = dict.fromkeys((own.source, *(fault.kind for fault in faults)))
    return Series(
        times_s=tuple(found[i][0] for i in kept), values=tuple(found[i][1] for i in kept),
        period_s=own.period_s if changes else math.inf,
        repeats_from_s=written_out.repeats_from_s if changes else 0.0,
        source=" and ".join(filter(None, sources)),
    )  # fmt: skip


def _last_s(fault: FaultPlan) -> float:
    assert fault.at_s is not None, "a link's fault, and that of a device, happens at a time"
    return fault.at_s + (fault.for_s if math.isfinite(fault.for_s) else 0.0)


def _or(without: float | None, value: float) -> float:
    return value if without is None else without


def _written_out(base: Series, until_s: float) -> Series:
    """Return the same function of time as a series that repeats from ``until_s`` on, or later."""
    if not base.repeats:
        return base
    assert base.repeats_from_s == 0
    laps = math.ceil(until_s / base.period_s)
    if (laps + 1) * len(base.times_s) > MOST_POINTS:
        raise ScenarioError(
            f"faults: a fault at {until_s:g} s falls into lap {laps} of the trace '{base.source}', which would be "
            f"written out with {(laps + 1) * len(base.times_s)} points, more than {MOST_POINTS}; let the fault "
            "begin or end earlier, or resample the trace (testbed trace FILE --resample '1 s' --out SHORT.csv)"
        )
    times = tuple(lap * base.period_s + time_s for lap in range(laps + 1) for time_s in base.times_s)
    return replace(base, times_s=times, values=base.values * (laps + 1), repeats_from_s=laps * base.period_s)
