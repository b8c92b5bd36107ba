"""Whether this machine is overloaded: then handshakes may take longer, and reports of silent peers say so."""

from __future__ import annotations

import os

_OVERLOAD = 4.0  # runnable processes per core


def load_per_core() -> float:
    """Return the mean number of runnable processes in the last minute, per core that this process may use."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def overload(load: float | None = None) -> str:
    """Return a text about overload, a possible cause, for the report of a silent peer; empty without overload."""
    load = load_per_core() if load is None else load
    if load < _OVERLOAD:
        return ""
    cure = "run fewer nodes at a time, or raise timeouts.dead_after"
    return f"; this machine is overloaded ({load:.0f} processes want each of its cores): {cure}"
