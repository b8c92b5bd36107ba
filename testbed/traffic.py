"""When background traffic flows: the same moments in emulation and in simulation, from the Plan's seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from testbed.plan.model import BackgroundPlan


def bursts(traffic: BackgroundPlan) -> Iterator[tuple[float, float]]:
    """(begin, end) of each time in which it sends, in seconds since the start of training.

    One burst for all but ``on_off``, whose bursts and silences are exponentially distributed (an interrupted Poisson
    process' envelope: A. Kuczura, "The interrupted Poisson process as an overflow process", BSTJ 1973).
    """
    if traffic.kind != "on_off":
        yield traffic.start_s, traffic.stop_s
        return
    random, at_s = Random(traffic.seed), traffic.start_s
    while at_s < traffic.stop_s:
        end_s = at_s + random.expovariate(1 / traffic.on_s)
        yield at_s, min(end_s, traffic.stop_s)
        at_s = end_s + random.expovariate(1 / traffic.off_s)
