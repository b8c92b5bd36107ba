"""The shaping of a layout's links: specifications, ``tc`` lines, and the distribution of links over delay lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from emulation.layout import Layout, SwitchPort
from emulation.shaping.delay_makers import NETEM_LIMIT_PACKETS, DelayMaker
from emulation.shaping.link_spec import DelayMethod, Interface, LinkSpec
from emulation.shaping.path import Path
from emulation.shaping.table import DelayTable
from emulation.shaping.traffic_control import htb_lines, netem_line
from testbed.errors import CapabilityError
from testbed.plan.model import Plan

LAN_QUEUE = 0
FIRST_QUEUE = 1


def link_specs(
    layout: Layout, plan: Plan, namespace_path: Callable[[str], str], method: DelayMethod
) -> tuple[LinkSpec, ...]:
    """Return the specification of every directed WAN link, in layout order."""

    def interface_of(port: SwitchPort) -> Interface:
        return Interface(namespace_path(port.vertex), port.interface)

    return tuple(
        LinkSpec(
            plan=link.plan,
            method=method,
            egress=interface_of(link.egress),
            ingress=interface_of(link.wire or link.ingress),
            row=row,
            queue=queue_number(link.ingress.interface),
            seed=f"{plan.seed}/{link.plan.name}",
        )
        for row, link in enumerate(layout.wan)
    )


def queue_number(interface: str) -> int:
    """Return the NFQUEUE of an interface on which packets arrive, ``wan<n>`` or the LAN's; unique in a namespace."""
    return FIRST_QUEUE + int(interface.removeprefix("wan")) if interface.startswith("wan") else LAN_QUEUE


def rate_lines(layout: Layout, vertex: str, channels: int = 0) -> list[str]:
    """Return ``tc -batch`` lines for every port of ``vertex`` with a rate. ``channels``: best-effort, on WAN links."""
    lines = []
    for link in layout.wan:
        if link.egress.vertex == vertex:
            lines += htb_lines(link.egress.interface, link.plan.rate_bps, link.plan.queue_bytes, channels)
    for lan in layout.lan:
        if lan.port.vertex == vertex:
            lines += htb_lines(lan.port.interface, lan.rate_bps, lan.queue_bytes)
    return lines


def netem_lines(specs: Sequence[LinkSpec], layout: Layout, vertex: str) -> list[str]:
    """Return ``tc -batch`` lines for the netem delays in ``vertex``; none with the delay line."""
    wires = {link.plan.name: link.wire for link in layout.wan if link.wire and link.wire.vertex == vertex}
    lines = [netem_line(spec.ingress.interface, spec.path, NETEM_LIMIT_PACKETS) for spec in specs if spec.name in wires]
    for lan in layout.lan_delays:
        if lan.wire and lan.wire.vertex == vertex:
            lines.append(netem_line(lan.wire.interface, Path(delay_s=lan.delay_s), NETEM_LIMIT_PACKETS))
    return lines


def delay_lines(specs: Sequence[LinkSpec]) -> list[tuple[float, dict[str, Any]]]:
    """Return the rate and the fields of the ``LineSpec`` of each WAN link."""
    return [
        (
            spec.plan.rate_bps,
            {"namespace": spec.ingress.namespace, "queue": spec.queue, "row": spec.row, "seed": spec.seed},
        )
        for spec in specs
    ]


def lan_delay_lines(
    layout: Layout, namespace_path: Callable[[str], str], first_row: int
) -> list[tuple[float, dict[str, Any]]]:
    """Return the same as ``delay_lines`` for the delays of LANs, whose rows follow the rows of the links."""
    return [
        (0.0, {"namespace": namespace_path(lan.port.vertex), "queue": LAN_QUEUE, "row": first_row + number, "seed": ""})
        for number, lan in enumerate(layout.lan_delays)
    ]


def delay_line_settings(
    lines: Sequence[tuple[float, dict[str, Any]]], table: DelayTable, realtime: bool, processes: int
) -> list[dict[str, Any]]:
    """Return the settings of each delay-line process. Distribute the lines greedily, the highest rates first."""
    shares: list[list[tuple[float, dict[str, Any]]]] = [[] for _ in range(max(1, min(processes, len(lines))))]
    for line in sorted(lines, key=lambda line: (-line[0], line[1]["row"])):
        min(shares, key=lambda share: (sum(rate for rate, _ in share), len(share))).append(line)
    common = {"table": table.descriptor, "rows": table.rows, "realtime": realtime}
    return [common | {"lines": [line for _, line in share]} for share in shares if share]


def refuse_unsupported(plan: Plan, delays: type[DelayMaker]) -> None:
    """Raise ``CapabilityError`` that names each link with duplication, which only netem can make."""
    found = []
    for link in () if delays.duplicates else plan.network.links:
        most = max((link.duplication, *(link.duplication_trace.values if link.duplication_trace else ())))
        if most:
            found.append(f"{link.name}: duplication of {most:.3g}")
    if found:
        raise CapabilityError(
            f"only netem can do this, but this kernel lacks it: {'; '.join(found)}. Cure: sudo modprobe sch_netem,"
            " a kernel that has it (Vagrantfile), or a scenario without duplication"
        )


def cut_bursts(plan: Plan, delays: type[DelayMaker]) -> Iterator[str]:
    """Yield a warning for each link that loses fewer packets than planned, as netem ends bursts when the delay changes.

    Each change ends a burst (``get_loss_clg`` in the kernel's net/sched/sch_netem.c), but only delays change often.
    """
    for link in plan.network.links:
        bursts = link.loss_burst_packets > 1 or link.burst_trace is not None
        losses = link.loss > 0 or link.loss_trace is not None
        if delays.ends_bursts and bursts and losses and (link.jitter_s > 0 or link.delay_trace is not None):
            what = "jitter, which changes the delay 20 times a second" if link.jitter_s > 0 else "a trace of its delay"
            yield (
                f"link {link.name}: fewer packets are lost than planned, as netem ends a burst of losses at each change"
                f" of the delay; leave out loss_burst, or {what}"
            )
