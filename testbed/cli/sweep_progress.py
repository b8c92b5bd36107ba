"""Shows the progress of a sweep: a bar with an estimate on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from testbed.display.remaining import Remaining
from testbed.numbers import counted, seconds
from testbed.results import FINISHED

if TYPE_CHECKING:
    from testbed.execution.sweep import SweepJob
    from testbed.execution.sweep_points import SweepPoint

LINE_EVERY_S = 10.0


class SweepProgress:
    """Counts points by state, estimates the remaining time, and shows nothing; the base of the displays.

    What cannot be written, as to a pipe without a reader, is left out: it must not end the runs under way.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.states = dict[str, str]()
        self._remaining = Remaining(total)
        self._running = False
        self._remaining.begin(time.monotonic())

    def take(self, point: SweepPoint, state: str) -> None:
        self.states[point.id] = state
        if not self._running:
            self._running = state == "running"
            self._remaining.skip(self.count(*FINISHED))  # runs of an earlier command
        self._remaining.take(self.count(*FINISHED), time.monotonic())

    def warn(self, text: str) -> None:
        """Tell the user about a machine of a cluster, or about a run that is tried again."""
        with suppress(OSError):
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def left(self) -> str:
        """Return the estimate as text; empty before the first run has ended."""
        left_s = self._remaining.at(time.monotonic())
        return "" if left_s is None else f"about {seconds(left_s)} left"

    def count(self, *states: str) -> int:
        return sum(state in states for state in self.states.values())


class _Lines(SweepProgress):
    """For pipes and files: prints a line per tenth of the sweep, at most every ten seconds, and failures at once."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._begin_s = self._last_s = time.monotonic()
        self._tenth = 0

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        now = time.monotonic()
        ended = self.count(*FINISHED)
        due = ended * 10 // self.total > self._tenth and now - self._last_s >= LINE_EVERY_S
        if state == "failed" or (state in FINISHED and due):
            self._last_s = now
            self._tenth = ended * 10 // self.total
            text = f"{ended}/{counted(self.total, 'run')}, {self.count('failed')} failed, {self.left()}"
            with suppress(OSError):
                print(f"[wall {now - self._begin_s:8.2f} s] {text}", flush=True)


class _Bar(SweepProgress):
    """For terminals."""

    def __init__(self, total: int, bar: Any) -> None:
        super().__init__(total)
        self._bar = bar
        self._task = bar.add_task("runs", total=total, left="")

    def warn(self, text: str) -> None:
        with suppress(OSError):
            self._bar.console.print(f"warning: {text}")

    def take(self, point: SweepPoint, state: str) -> None:
        super().take(point, state)
        failed = self.count("failed")
        text = f"runs, {self.count('running')} running" + (f", {failed} failed" if failed else "")
        self._bar.update(self._task, completed=self.count(*FINISHED), description=text, left=self.left())


@contextmanager
def progress(job: SweepJob, *, quiet: bool) -> Iterator[SweepProgress]:
    """Yield the display that fits standard output."""
    total = len({point.id for point in job.points})
    if quiet or not sys.stdout.isatty():
        yield SweepProgress(total) if quiet else _Lines(total)
        return
    from testbed.display.look import progress_bar

    bar = progress_bar("")
    try:
        with suppress(OSError):
            bar.start()
        yield _Bar(total, bar)
    finally:
        with suppress(OSError):
            bar.stop()
