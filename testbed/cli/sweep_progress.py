"""What is shown while many runs go on: a bar with an estimate on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.run.sweep import SweepJob
    from testbed.run.sweep_points import SweepPoint

LINE_EVERY_S = 5.0
ENDED = ("done", "degraded", "failed", "interrupted")


class Tally:
    """Counts points by state; the base of the displays."""

    def __init__(self, total: int) -> None:
        self.total, self.states = total, dict[str, str]()

    def take(self, point: SweepPoint, state: str) -> None:
        self.states[point.id] = state

    def count(self, *states: str) -> int:
        return sum(state in states for state in self.states.values())


class Lines(Tally):
    """For pipes and files."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._begin_s = self._last_s = time.monotonic()

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        now, ended = time.monotonic(), self.count(*ENDED)
        if state in ENDED and (now - self._last_s >= LINE_EVERY_S or state == "failed"):
            self._last_s = now
            left_s = (now - self._begin_s) / ended * (self.total - ended)
            told = f"{ended}/{self.total} runs, {self.count('failed')} failed, about {left_s:.0f} s to go"
            print(f"[{now - self._begin_s:6.1f} s] {told}", flush=True)


class Bar(Tally):
    """For terminals."""

    def __init__(self, total: int, progress: Any) -> None:
        super().__init__(total)
        self._progress = progress
        self._task = progress.add_task("runs", total=total)

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        failed = self.count("failed")
        about = f"runs, {self.count('running')} under way" + (f", {failed} failed" if failed else "")
        self._progress.update(self._task, completed=self.count(*ENDED), description=about)


@contextmanager
def progress(job: SweepJob, *, quiet: bool) -> Iterator[Tally]:
    """The display that fits where standard output goes."""
    total = len({point.id for point in job.shard.of(job.points)})
    if quiet or not sys.stdout.isatty():
        yield Tally(total) if quiet else Lines(total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=36), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("gone, about"), Remaining(), TextColumn("to go"))  # fmt: skip
    with Progress(*columns) as shown:
        yield Bar(total, shown)
