"""What it takes to shape a layout's links: specifications, ``tc`` lines, and how the delay lines share the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emulation.layout import Layout
from emulation.shaping.base import NETEM_LIMIT_PACKETS, DelayMethod, LinkSpec
from emulation.shaping.table import Table
from emulation.shaping.traffic_control import htb_lines, netem_line
from testbed.plan.model import Plan

FIRST_QUEUE = 1


def link_specs(
    layout: Layout, plan: Plan, namespace_path: Callable[[str], str], method: DelayMethod
) -> tuple[LinkSpec, ...]:
    """A specification for every directed WAN link, in layout order."""
    return tuple(
        LinkSpec(
            name=link.plan.name,
            method=method,
            rate_namespace=namespace_path(link.egress.vertex),
            rate_interface=link.egress.interface,
            delay_namespace=namespace_path((link.wire or link.ingress).vertex),
            delay_interface=(link.wire or link.ingress).interface,
            row=row,
            queue=queue_number(link.ingress.interface),
            seed=f"{plan.seed}/{link.plan.name}",
            rate_bps=link.plan.rate_bps,
            queue_bytes=link.plan.queue_bytes,
            delay_s=link.plan.delay_s,
            loss=link.plan.loss,
        )
        for row, link in enumerate(layout.wan)
    )


def queue_number(interface: str) -> int:
    """The NFQUEUE of an arriving interface ``wan<n>``; numbers are a namespace's own."""
    return FIRST_QUEUE + int(interface.removeprefix("wan"))


def rate_lines(layout: Layout, vertex: str) -> list[str]:
    """``tc -batch`` lines for every port of ``vertex`` that has a rate."""
    lines = []
    for link in layout.wan:
        if link.egress.vertex == vertex:
            lines += htb_lines(link.egress.interface, link.plan.rate_bps, link.plan.queue_bytes)
    for lan in layout.lan:
        if lan.port.vertex == vertex:
            lines += htb_lines(lan.port.interface, lan.rate_bps, lan.queue_bytes)
    return lines


def netem_lines(specs: Sequence[LinkSpec], layout: Layout, vertex: str) -> list[str]:
    """``tc -batch`` lines for the delays that sit in ``vertex``; none with the delay line."""
    wires = {link.plan.name: link.wire for link in layout.wan if link.wire and link.wire.vertex == vertex}
    return [
        netem_line(spec.delay_interface, spec.delay_s, "", NETEM_LIMIT_PACKETS) for spec in specs if spec.name in wires
    ]


def delay_line_settings(
    specs: Sequence[LinkSpec], table: Table, realtime: bool, processes: int
) -> list[dict[str, Any]]:
    """Settings of each delay-line process: links dealt out so that their rates are about even."""
    shares: list[list[LinkSpec]] = [[] for _ in range(max(1, min(processes, len(specs))))]
    for spec in sorted(specs, key=lambda spec: (-spec.rate_bps, spec.row)):
        min(shares, key=lambda share: sum(other.rate_bps for other in share)).append(spec)
    return [
        {
            "table": table.descriptor,
            "rows": table.rows,
            "realtime": realtime,
            "lines": [
                {"namespace": spec.delay_namespace, "queue": spec.queue, "row": spec.row, "seed": spec.seed}
                for spec in share
            ],
        }
        for share in shares
        if share
    ]
