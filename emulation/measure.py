"""Before training: every link and path of the emulated network is measured against the plan.

A value outside its tolerance is measured again; if it stays outside, the run gets a warning (and its fidelity is
degraded). A value that is off by more than ten tolerances, a fifth of a rate, ends the run before it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from emulation.measurement import BuiltNetwork, Measurement, describe
from emulation.rates import measure_rates
from emulation.round_trips import measure_rtts
from testbed.errors import NetworkMismatch

FAR_OUTSIDE = 10.0  # in tolerances


def measure(net: BuiltNetwork, record: Callable[..., None], budget_s: float) -> list[Measurement]:
    """Round-trip times of all links and paths, and rates of as many links as fit into ``budget_s`` seconds.

    Each value is recorded as a ``measured`` event, outside its tolerance also as a ``warning``. Raise
    ``NetworkMismatch`` if a value is far outside.
    """
    results = [*measure_rtts(net), *measure_rates(net, budget_s)]
    for each in results:
        record("measured", ok=each.ok, **asdict(each))
        if not each.ok:
            record("warning", message=describe(each))
    far = [describe(each) for each in results if each.off_by > FAR_OUTSIDE]
    if far:
        raise NetworkMismatch("the emulated network differs from the plan:\n  " + "\n  ".join(far))
    return results
