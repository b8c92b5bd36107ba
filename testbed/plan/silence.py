"""When a data centre counts as lost because its links have carried nothing for too long, read from the Plan alone.

The real world finds this out by heartbeats; the virtual world sends none and asks this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from testbed.plan.model import LinkPlan, NetworkPlan, Plan
from testbed.settings.series import Series

Span = tuple[float, float]


def silences(plan: Plan) -> Iterator[tuple[float, str]]:
    """Yield ``(time, data centre)``: when each data centre has been cut off from the scheduler for ``dead_after_s``."""
    patience_s = plan.timeouts.dead_after_s
    for site, spans in cut_off(plan).items():
        yield from ((begin_s + patience_s, site) for begin_s, end_s in spans if end_s - begin_s > patience_s)


def cut_off(plan: Plan) -> dict[str, list[Span]]:
    """Return the intervals, in s of training, in which each data centre cannot reach the scheduler, or the reverse."""
    schedulers = plan.with_role("scheduler")
    return cut_off_from((schedulers or plan.nodes)[0].data_center, plan.network)


def cut_off_from(home: str, network: NetworkPlan) -> dict[str, list[Span]]:
    """Return the intervals, in s of training, in which each data centre cannot reach ``home``, or the reverse."""
    down = {link.name: spans for link in network.links if (spans := [*outages(link)])}
    found = {}
    for site in network.sites if down else ():
        ways = [network.routes.get(name, ()) for name in (f"{site.name}>{home}", f"{home}>{site.name}")]
        found[site.name] = merged([span for way in ways for link in way for span in down.get(link, ())])
    return found


def longest_outage(link: LinkPlan) -> Span:
    """Return (begin, end) of the link's longest outage. The end may be ``math.inf``; (0, 0): there is no outage."""
    return max(merged([*outages(link)]), key=lambda span: span[1] - span[0], default=(0.0, 0.0))


def longest_wait_s(home: str, network: NetworkPlan) -> float:
    """Return the longest temporary outage, in s, of a link or between a data centre and ``home``.

    Permanent outages do not count: no deadline can outlast them.
    """
    spans = [span for found in cut_off_from(home, network).values() for span in found]
    spans += [longest_outage(link) for link in network.links]
    return max((end_s - begin_s for begin_s, end_s in spans if math.isfinite(end_s)), default=0.0)


def outages(link: LinkPlan) -> Iterator[Span]:
    """Yield the spans in which a link delivers nothing: it is down, has rate 0, or loses or corrupts every packet."""
    for series in (link.state_trace, link.rate_trace):
        if series is not None:
            yield from _spans(series, lambda value: value <= 0)
    for share, series in ((link.loss, link.loss_trace), (link.corruption, link.corruption_trace)):
        if series is not None:
            yield from _spans(series, lambda value: value >= 1)
        elif share >= 1:
            yield 0.0, math.inf


def _spans(series: Series, has: Callable[[float], bool]) -> Iterator[Span]:
    """Yield the spans in which ``has`` holds for the value of a series; of a repeating one, only in two periods."""
    if not any(map(has, series.values)):
        return
    for begin_s, end_s, value in series.segments():
        if begin_s >= series.repeats_from_s + 2 * series.period_s:
            return
        if has(value):
            yield begin_s, end_s


def merged(spans: list[Span]) -> list[Span]:
    """Return the union of intervals, in order."""
    found: list[Span] = []
    for begin_s, end_s in sorted(spans):
        if found and begin_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((begin_s, end_s))
    return found
