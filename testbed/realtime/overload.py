"""Whether this machine has more to do than it can: then waits are longer, and reports say so."""

from __future__ import annotations

import os

_OVERLOAD = 4.0  # processes that want to run, by core


def load_per_core() -> float:
    """Return how many processes wanted to run in the last minute, by core that this process may use."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def overload(load: float | None = None) -> str:
    """Return what to add to the report of a silent peer, as overload may be the cause; empty if there is none."""
    load = load_per_core() if load is None else load
    if load < _OVERLOAD:
        return ""
    cure = "run fewer nodes at a time, or raise timeouts.dead_after"
    return f"; this machine is overloaded ({load:.0f} processes want each of its cores): {cure}"
