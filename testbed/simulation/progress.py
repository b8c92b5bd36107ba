"""Progress of the simulation as a whole, for the watcher of the run."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.results.progress import Progress
from testbed.simulation.clock import Clock

_INTERVAL_S = 0.2  # wall time: at most five reports a second


class ProgressReporter:
    """Reports now and then, by wall time, how far virtual time is and how fast it passes."""

    def __init__(self, clock: Clock, progress: Progress, report_nodes: Callable[[], None]) -> None:
        self._clock, self._progress, self._report_nodes = clock, progress, report_nodes
        self._start_s = self._last_s = time.perf_counter()
        self._last_now = 0.0

    def tick(self) -> None:
        """Report, if the last report is long enough ago."""
        wall_s = time.perf_counter()
        if wall_s - self._last_s < _INTERVAL_S:
            return
        now = self._clock.now
        rate = (now - self._last_now) / (wall_s - self._last_s)
        self._progress(
            {
                "kind": "status", "t": now, "node": "simulation", "simulated_s": now, "rate": rate,
                "wall_s": wall_s - self._start_s,
            }
        )  # fmt: skip
        self._report_nodes()
        self._last_s, self._last_now = wall_s, now
