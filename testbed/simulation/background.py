"""Background traffic in virtual time. Datagrams do not yield to TCP, so they take their rate from the links they cross.

Background TCP is not simulated; the scenario refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from testbed.plan.model import BackgroundPlan, Plan
from testbed.simulation.clock import Clock
from testbed.simulation.link_monitor import LinkMonitor
from testbed.traffic import bursts


def start_background(plan: Plan, clock: Clock, links: LinkMonitor, start_s: float) -> None:
    """Start all background traffic of the Plan; its time 0 is ``start_s``, the start of training."""
    numbers = {link.name: number for number, link in enumerate(plan.network.links)}
    for traffic in plan.background:
        route = plan.network.between(traffic.source, traffic.target)
        path = tuple(numbers[name] for name in route)
        clock.follow(_rate_changes(traffic), start_s, partial(_take, links, path))


def _take(links: LinkMonitor, path: tuple[int, ...], _at_s: float, rate_bps: float) -> None:
    links.take(path, rate_bps)


def _rate_changes(traffic: BackgroundPlan) -> Iterator[tuple[float, float]]:
    """Yield (time in s, change of the rate in bit/s)."""
    for begin_s, end_s in bursts(traffic):
        yield begin_s, traffic.rate_bps
        if end_s < math.inf:
            yield end_s, -traffic.rate_bps
