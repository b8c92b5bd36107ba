"""Background traffic in virtual time. Datagrams do not yield to TCP, so they take their rate from the links they cross.

Background TCP is not simulated; the scenario refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from testbed.plan.model import BackgroundPlan, Plan
from testbed.plan.routes import routes_of
from testbed.simulation.clock import Clock
from testbed.simulation.link_monitor import LinkMonitor
from testbed.traffic import bursts


def start_background(plan: Plan, clock: Clock, links: LinkMonitor, start_s: float) -> None:
    """Start all background traffic of the Plan; its time 0 is ``start_s``, the start of training."""
    numbers = {link.name: number for number, link in enumerate(plan.network.links)}
    for traffic in plan.background:
        route = routes_of(plan.network).between(traffic.source, traffic.target)
        _follow(_rate_changes(traffic), tuple(numbers[name] for name in route), clock, links, start_s)


def _rate_changes(traffic: BackgroundPlan) -> Iterator[tuple[float, float]]:
    """Yield (time in s, change of the rate in bit/s)."""
    for begin_s, end_s in bursts(traffic):
        yield begin_s, traffic.rate_bps
        if end_s < math.inf:
            yield end_s, -traffic.rate_bps


def _follow(
    changes: Iterator[tuple[float, float]], path: tuple[int, ...], clock: Clock, links: LinkMonitor, start_s: float
) -> None:
    """Apply the changes that are due, then the next one at its time, and so on."""
    for change_s, rate_bps in changes:
        if start_s + change_s > clock.now:

            def apply(_: object, rate_bps: float = rate_bps) -> None:
                links.take(path, rate_bps)
                _follow(changes, path, clock, links, start_s)

            clock.at_background(start_s + change_s, apply)
            return
        links.take(path, rate_bps)
