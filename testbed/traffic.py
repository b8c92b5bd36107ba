"""The times at which background traffic is sent. The Plan's seed makes them equal in emulation and in simulation."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from testbed.settings.run import Background


def bursts(traffic: Background) -> Iterator[tuple[float, float]]:
    """Yield (begin, end) of each burst, in seconds since the start of training.

    Traffic other than ``on_off`` is one burst. Bursts and pauses of ``on_off`` are exponentially distributed with the
    means ``on_s`` and ``off_s``: the envelope of an interrupted Poisson process (A. Kuczura, "The interrupted Poisson
    process as an overflow process", Bell System Technical Journal 52(3), 1973).
    """
    if traffic.kind != "on_off":
        yield traffic.start_s, traffic.stop_s
        return
    random = Random(traffic.seed)
    at_s = traffic.start_s
    while at_s < traffic.stop_s:
        end_s = at_s + random.expovariate(1 / traffic.on_s)
        yield at_s, min(end_s, traffic.stop_s)
        at_s = end_s + random.expovariate(1 / traffic.off_s)
