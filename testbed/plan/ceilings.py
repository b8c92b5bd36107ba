"""How long any wait may be, unless the scenario names a longer one: derived deadlines above that are a problem.

A deadline of hours usually comes from a value that was not meant: a queue of 100 MB before a slow link, a device of a
thousandth of its speed. So the problem names that value. ``timeouts: {dead_after: 20 min}`` raises the limit of one
deadline, and of those that may not be shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.plan.links import MIN_QUEUE_BYTES, default_queue_bytes, longest_delay_s
from testbed.plan.model import LinkPlan, Timeouts
from testbed.scenario import Scenario
from testbed.units import format_duration, format_rate, format_size

RUN_STEPS = 10  # a run may last at least so many of its step deadlines
# In the order in which each may not be shorter than the one before it. Heartbeats are bounded by ``dead_after``.
CEILINGS_S = {
    "dead_after": 300.0, "rendezvous": 600.0, "tcp_user_timeout": 600.0, "step_deadline": 72 * 3600.0,
    "run_deadline": 720 * 3600.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of a deadline, in seconds, and what in the scenario it comes from: a key, and a text."""

    part_s: float
    key: tuple[str, ...]
    text: str


Reasons = dict[str, tuple[Reason, ...]]  # by deadline


def queue_reason(part_s: float, link: LinkPlan, slowest_bps: float) -> Reason:
    """Return the reason of a part that grows with the queue, or the delay, of the longest path's worst link."""
    drain_s = link.queue_bytes * 8 / slowest_bps
    by_delay = link.queue_bytes == default_queue_bytes(slowest_bps, link.delay_s) > MIN_QUEUE_BYTES
    delay_s = longest_delay_s(link)
    if by_delay or drain_s / 2 < delay_s + link.jitter_s:
        return Reason(part_s, ("topology", "links"), f"the delay of {link.name} is {format_duration(delay_s)}")
    size, rate = format_size(link.queue_bytes), format_rate(slowest_bps)
    text = f"the queue of {link.name}, {size}, takes {drain_s:.3g} s to drain at {rate}; write a smaller 'queue'"
    return Reason(part_s, ("topology", "links"), text)


def too_long(scenario: Scenario, timeouts: Timeouts, reasons: Reasons) -> Iterator[str]:
    """Yield a problem for the first derived deadline that is too long. Others often are for the same reason."""
    longest_s = 0.0
    for name, ceiling_s in CEILINGS_S.items():
        value_s, longest_s = getattr(timeouts, f"{name}_s"), max(longest_s, ceiling_s)
        if getattr(scenario.timeouts, name) is None and value_s > longest_s:
            reason = max(reasons[name], key=lambda each: each.part_s)
            where, key = scenario.place_of(*reason.key), ".".join(reason.key)
            limit = f"{format_duration(ceiling_s)} (or write 'timeouts: {{{name}: …}}')"
            yield f"{where}: {key}: timeouts.{name} would be {value_s:.4g} s, above {limit}: {reason.text}"
            return
        longest_s = max(longest_s, value_s * (RUN_STEPS if name == "step_deadline" else 1))
