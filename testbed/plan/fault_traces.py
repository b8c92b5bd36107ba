"""Faults of links and devices, written into the series that every back end follows.

``testbed.plan.fault_clock`` has the faults that must be carried out while a run goes on (a process that is killed).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, NodePlan, Series

# by kind: the trace that a fault changes, and the field with the value that the link has otherwise
_CHANGED = {
    "down": ("state_trace", ""), "rate": ("rate_trace", "rate_bps"), "loss": ("loss_trace", "loss"),
    "delay": ("delay_trace", "delay_s"), "corrupt": ("corruption_trace", "corruption"),
    "duplicate": ("duplication_trace", "duplication"), "reorder": ("reordering_trace", "reordering"),
}  # fmt: skip
_BURST = ("burst_trace", "loss_burst_packets")
WRITTEN_OUT_S = 6 * 3600.0
MOST_POINTS = 100_000


def with_faults(network: NetworkPlan, faults: Iterable[FaultPlan]) -> NetworkPlan:
    """Return the network with the faults of links in their traces."""
    links = {link.name: link for link in network.links}
    for fault in faults:
        for name in fault.targets if fault.kind in _CHANGED else ():
            links[name] = _changed(links[name], fault, *_CHANGED[fault.kind], fault.value)
            if fault.burst:
                links[name] = _changed(links[name], fault, *_BURST, fault.burst)
    return replace(network, links=tuple(links.values()))


def _changed(link: LinkPlan, fault: FaultPlan, trace: str, field: str, value: float) -> LinkPlan:
    usual = getattr(link, field) if field else 1.0
    base = getattr(link, trace) or Series(times_s=(0.0,), values=(usual,))
    assert fault.at_s is not None, "a link's fault happens at a time"
    traces: dict[str, Any] = {trace: laid_over(base, fault.at_s, fault.for_s, lambda _: value, fault.kind)}
    return replace(link, **traces)


def slowed(nodes: tuple[NodePlan, ...], faults: Iterable[FaultPlan]) -> tuple[NodePlan, ...]:
    """Return the nodes with the faults of devices in their slowdowns."""
    known = {node.name: node for node in nodes}
    for fault in faults:
        for name in fault.targets if fault.kind == "slow" else ():
            device = known[name].device
            base = device.slowdown or Series(times_s=(0.0,), values=(1.0,))
            assert fault.at_s is not None, "a device is slow at a time"
            series = laid_over(base, fault.at_s, fault.for_s, lambda before, by=fault.value: before * by, "slow")  # type: ignore[misc]
            known[name] = replace(known[name], device=replace(device, slowdown=series))
    return tuple(known.values())


def laid_over(base: Series, at_s: float, for_s: float, change: Callable[[float], float], source: str) -> Series:
    """Return ``base`` with ``change`` applied to its value from ``at_s`` on, for ``for_s``.

    A periodic series is written out for six hours after the change (but at most 100 000 points); then its last value
    stays.
    """
    flat = _written_out(base, at_s + (for_s if math.isfinite(for_s) else 0.0))
    end_s = at_s + for_s
    times = sorted({*flat.times_s, at_s, *((end_s,) if math.isfinite(end_s) else ())})
    before = [flat.values[bisect_right(flat.times_s, time_s) - 1] for time_s in times]
    values = [change(value) if at_s <= time_s < end_s else value for time_s, value in zip(times, before, strict=True)]
    kept = [i for i in range(len(times)) if i == 0 or values[i] != values[i - 1]]
    return Series(
        times_s=tuple(times[i] for i in kept), values=tuple(values[i] for i in kept),
        source=f"{base.source} and {source}" if base.source else source,
    )  # fmt: skip


def _written_out(base: Series, until_s: float) -> Series:
    """Return the series without a period."""
    if not math.isfinite(base.period_s):
        return base
    needed = math.floor((until_s + WRITTEN_OUT_S) / base.period_s) + 1
    laps = max(1, min(needed, MOST_POINTS // len(base.times_s)))
    times = tuple(lap * base.period_s + time_s for lap in range(laps) for time_s in base.times_s)
    return Series(times_s=times, values=base.values * laps, source=base.source)
