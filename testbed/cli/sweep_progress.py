"""The progress of a sweep: a bar with an estimate on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from testbed.results import FINISHED

if TYPE_CHECKING:
    from testbed.run.sweep import SweepJob
    from testbed.run.sweep_points import SweepPoint

LINE_EVERY_S = 5.0


class SweepProgress:
    """Counts points by state, and shows nothing; the base of the displays."""

    def __init__(self, total: int) -> None:
        self.total, self.states = total, dict[str, str]()

    def take(self, point: SweepPoint, state: str) -> None:
        """Record a point's new state."""
        self.states[point.id] = state

    def count(self, *states: str) -> int:
        """Return the number of points in these states."""
        return sum(state in states for state in self.states.values())


class _Lines(SweepProgress):
    """For pipes and files."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._begin_s = self._last_s = time.monotonic()

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        now, ended = time.monotonic(), self.count(*FINISHED)
        if state in FINISHED and (now - self._last_s >= LINE_EVERY_S or state == "failed"):
            self._last_s = now
            left_s = (now - self._begin_s) / ended * (self.total - ended)
            text = f"{ended}/{self.total} runs, {self.count('failed')} failed, about {left_s:.0f} s left"
            print(f"[{now - self._begin_s:6.1f} s] {text}", flush=True)


class _Bar(SweepProgress):
    """For terminals."""

    def __init__(self, total: int, bar: Any) -> None:
        super().__init__(total)
        self._bar, self._task = bar, bar.add_task("runs", total=total)

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        failed = self.count("failed")
        text = f"runs, {self.count('running')} running" + (f", {failed} failed" if failed else "")
        self._bar.update(self._task, completed=self.count(*FINISHED), description=text)


@contextmanager
def progress(job: SweepJob, *, quiet: bool) -> Iterator[SweepProgress]:
    """Yield the display that fits standard output."""
    total = len({point.id for point in job.shard.of(job.points)})
    if quiet or not sys.stdout.isatty():
        yield SweepProgress(total) if quiet else _Lines(total)
        return
    from testbed.cli.look import progress_bar

    with progress_bar("about") as bar:
        yield _Bar(total, bar)
