"""Trace replay: changes rates, delays and losses of links while training runs.

Runs as a separate process, with real-time priority where that is allowed. A heap merges the changes of all links by
time; the process sleeps until the next change is due, on CLOCK_MONOTONIC, so lateness does not accumulate. It records
every change with its lateness, and warns if a change comes later than its own duration, as the link then did not follow
the plan.

Jitter is made here, too, as a delay that changes every ``JITTER_STEP_S``. netem's own jitter draws a delay per packet
and so reorders packets, which makes TCP retransmit for no reason. When a delay falls here, packets keep their order: a
delay line preserves it, and netem does so by a rate that it has for this purpose (``emulation.shaping.path``).
"""

from __future__ import annotations

import heapq
import json
import math
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from emulation.helpers import prepare_child
from emulation.shaping.base import Shaper
from emulation.shaping.link_spec import LinkSpec
from emulation.shaping.table import DelayTable
from testbed.plan.effects import LinkState
from testbed.results.events import EventLog
from testbed.settings.series import Series

PRIORITY = 40  # SCHED_FIFO; below the delay line (50)
JITTER_STEP_S = 0.05  # several round trips of a LAN and a fraction of most WANs': within one, packets see one delay
IMPAIRMENTS = ("loss", "burst", "corruption", "duplication", "reordering")
FLUSH_S = 0.5
LATE_FLOOR_S = 0.02  # no warning below this, however short a trace's steps are


@dataclass(frozen=True, slots=True)
class Timeline:
    """The changes of one quantity of one link.

    ``what``: ``rate`` (0: down) | ``delay`` | ``loss`` | ``state`` (1 up, 0 down) | ``burst`` | ``corruption``
    | ``duplication`` | ``reordering`` | ``jitter`` (half its width; ``seed`` draws).
    """

    link: str
    what: str
    series: Series
    seed: str = ""

    def changes(self, after_s: float = 0.0) -> Iterator[tuple[float, float, float]]:
        """(time, value, duration) from the value that holds at ``after_s`` on, times in seconds of training."""
        if self.what == "jitter":
            yield from self._jitter(after_s)
            return
        for begin_s, end_s, value in self.series.segments(after_s):
            yield begin_s, value, end_s - begin_s

    def _jitter(self, after_s: float) -> Iterator[tuple[float, float, float]]:
        random = Random(self.seed)
        step = max(0, math.floor(after_s / JITTER_STEP_S))
        half_width_s = self.series.values[0]
        while True:
            yield step * JITTER_STEP_S, random.uniform(-half_width_s, half_width_s), JITTER_STEP_S
            step += 1


def timelines_of(specs: Iterable[LinkSpec]) -> list[Timeline]:
    """Return the traces and jitters of these links. Jitter is uniform: half width = sqrt(3) deviations."""
    found = []
    for spec in specs:
        for what in ("rate", "delay", "state", *IMPAIRMENTS):
            series: Series | None = getattr(spec.plan, f"{what}_trace")
            if series is not None:
                found.append(Timeline(spec.name, what, series))
        if spec.plan.jitter_s > 0:
            half_width = Series(times_s=(0.0,), values=(spec.plan.jitter_s * math.sqrt(3),))
            found.append(Timeline(spec.name, "jitter", half_width, f"{spec.seed}/jitter"))
    return found


class Replay:
    """Applies timelines to a shaper. The caller keeps the clock, and calls ``apply`` at ``due_s``.

    ``since_s``: when the run began, in seconds of training; no change was due before.
    """

    def __init__(self, timelines: list[Timeline], shaper: Shaper, now_s: float = 0.0, since_s: float = 0.0) -> None:
        self._shaper = shaper
        self._since_s = since_s
        self._states = {name: LinkState(spec.plan) for name, spec in shaper.specs.items()}
        self._heap: list[tuple[float, int, float, float]] = []
        self._timelines = timelines
        self._sources = [timeline.changes(now_s) for timeline in timelines]
        for number in range(len(timelines)):
            self._push(number)

    @property
    def due_s(self) -> float | None:
        """When the next change is due, in seconds of training; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def apply(self) -> tuple[Timeline, float, float, float]:
        """Make the next change; return its timeline, planned time, value and duration."""
        planned, number, value, step = heapq.heappop(self._heap)
        timeline = self._timelines[number]
        self._set(timeline, value)
        self._push(number)
        return timeline, planned, value, step

    def _push(self, number: int) -> None:
        change = next(self._sources[number], None)
        if change is not None:
            heapq.heappush(self._heap, (max(change[0], self._since_s), number, change[1], change[2]))

    def _set(self, timeline: Timeline, value: float) -> None:
        link = timeline.link
        what = timeline.what
        state = self._states[timeline.link]
        was_up = state.up
        state.take(what, value)
        if what == "rate" and not state.outage:
            self._shaper.set_rate(link, state.rate_bps)
        elif what in IMPAIRMENTS:
            self._shaper.set_path(link, **{what: value})
        elif what in ("delay", "jitter"):
            self._shaper.set_path(link, delay_s=state.delay_s + state.jitter_s)
        if state.up != was_up:
            self._shaper.set_up(link, state.up)


class ReplayRecorder:
    """Writes ``replay`` events, a warning at the first late change of a link, and one with their number at the end."""

    def __init__(self, log: EventLog, epoch_s: float) -> None:
        self._log = log
        self._epoch_s = epoch_s
        self._late: dict[str, int] = {}
        self._flushed_s = 0.0

    def change(self, change: tuple[Timeline, float, float, float], start_s: float, now_s: float) -> None:
        """Record a change made at ``now_s``; ``start_s``: the start of training. Both on CLOCK_MONOTONIC."""
        timeline, planned, value, step = change
        late = now_s - (start_s + planned)
        now = now_s - self._epoch_s
        self._log.write(
            "replay",
            now,
            link=timeline.link,
            what=timeline.what,
            value=value,
            late_s=round(late, 6),
            planned_t=round(start_s + planned - self._epoch_s, 6),
        )
        if late > max(step, LATE_FLOOR_S):
            self._late[timeline.link] = self._late.get(timeline.link, 0) + 1
            if self._late[timeline.link] == 1:
                self._log.write("warning", now, message=f"{timeline.link}: trace step {late * 1e3:.0f} ms late")
        if now_s - self._flushed_s > FLUSH_S:
            self._log.flush()
            self._flushed_s = now_s

    def close(self) -> None:
        for link, count in self._late.items():
            now = time.monotonic() - self._epoch_s
            self._log.write("warning", now, message=f"{link}: {count} trace steps were more than one step late")
        self._log.close()


def main() -> None:
    """Prepare; wait for the line with the start of training; follow the timelines until SIGTERM or their end.

    A process takes a fifth of a second to start, so it is started in advance: the first change is on time too.
    """
    given = json.loads(sys.stdin.readline())
    prepare_child(priority=PRIORITY if given["realtime"] else None)
    specs = [LinkSpec.from_dict(link) for link in given["links"]]
    shaper = Shaper(specs, DelayTable(given["table"], given["rows"]))
    timelines = timelines_of(specs)
    log = EventLog(Path(given["events"]), given["writer"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)  # noqa: T201 - the parent waits for this word
    start = sys.stdin.readline()
    if start:
        _follow(timelines, shaper, log, StartClock(**json.loads(start)))


@dataclass(frozen=True, slots=True)
class StartClock:
    """When the run began, and when t = 0 of training was, on CLOCK_MONOTONIC.

    ``trained_s``: seconds of training before the run resumed.
    """

    epoch_s: float
    start_s: float
    trained_s: float = 0.0

    def wait_until(self, due_s: float) -> None:
        """Return when ``due_s`` seconds of training have passed."""
        time.sleep(max(0.0, self.start_s + due_s - time.monotonic()))


def _follow(timelines: list[Timeline], shaper: Shaper, log: EventLog, clock: StartClock) -> None:
    recorder = ReplayRecorder(log, clock.epoch_s)
    replay = Replay(timelines, shaper, max(0.0, time.monotonic() - clock.start_s), clock.trained_s)
    try:
        while (due_s := replay.due_s) is not None:
            clock.wait_until(due_s)
            recorder.change(replay.apply(), clock.start_s, time.monotonic())
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        recorder.close()


if __name__ == "__main__":
    main()
