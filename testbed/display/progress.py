"""Shows the progress of a run: a live table on a terminal or in a notebook, else plain lines, or JSON for scripts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from testbed import numbers
from testbed.display import look, state
from testbed.display.notebook import html_of, is_notebook
from testbed.display.remaining import Remaining
from testbed.plan.model import Plan

if TYPE_CHECKING:
    from rich.table import Table

Event = Mapping[str, Any]
Clock = Callable[[], float]
LINE_EVERY_S = 10.0
_NOTEBOOK_S = 0.25
ROWS_SHOWN = 16  # so many rows and the bar below fit on a terminal
_ALWAYS = ("stage", "train", "warning")


class Display:
    """Takes progress events between ``__enter__`` and ``__exit__``, and shows nothing; the base of other displays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def show(self, event: Event) -> None: ...


class JsonLines(Display):
    """Prints every event as one line of JSON. ``job`` names the job if the run has several."""

    def __init__(self, out: TextIO, job: str = "") -> None:
        self._out = out
        self._of_job = {"job": job} if job else {}

    def show(self, event: Event) -> None:
        print(look.json_line({**event, **self._of_job}), file=self._out, flush=True)


class RunClock:
    """The clock of all lines of a run: virtual or wall-clock seconds since the run's start, from its progress events.

    An event without a time gets the time of the event before.
    """

    def __init__(self, plan: Plan) -> None:
        self._name = "virtual" if plan.facilities.in_virtual_time else "wall"
        self._t = 0.0

    def take(self, event: Event) -> None:
        self._t = float(event.get("t") or self._t)

    def line(self, text: str) -> str:
        """Return ``text`` after the clock's name and time."""
        return f"[{self._name} {self._t:8.2f} s] {text}"


class _Estimating(Display):
    """Keeps the state of the run and an estimate of its remaining time; the base of displays that show both."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._state = state.initial(plan)
        self._remaining = Remaining(self._state.total)

    def _take(self, event: Event) -> float:
        """Update state and estimate by an event. Return the present time."""
        self._state.take(event)
        now_s = self._clock()
        if event["kind"] == "train":
            self._remaining.begin(now_s)
        self._remaining.skip(self._state.before or 0)
        self._remaining.take(self._state.completed, now_s)
        return now_s

    def _left(self, now_s: float) -> str:
        """Return the estimated remaining time as text, or an empty text; it is wall-clock time on every back end."""
        left_s = self._remaining.at(now_s)
        return "" if not left_s else f"at most {numbers.seconds(left_s)} left"


class PlainLines(_Estimating):
    """Prints stages and warnings as they come, and the state at each tenth of the run, at most every ten seconds.

    ``job`` names the job if the run has several.
    """

    def __init__(self, plan: Plan, out: TextIO, clock: Clock, job: str = "") -> None:
        super().__init__(plan, clock)
        self._out = out
        self._job = f"{job}: " if job else ""
        self._run_clock = RunClock(plan)
        self._last_s = clock()
        self._shown = self._tenth = 0  # completed rounds and tenths of the run in the last line of progress

    def __exit__(self, *error: object) -> None:
        self._end(self._clock())

    def _end(self, now: float) -> None:
        if self._state.completed > self._shown:
            self._print_state(now)

    def show(self, event: Event) -> None:
        self._run_clock.take(event)
        now = self._take(event)
        if event["kind"] == "train":
            self._last_s = now
        if event["kind"] in _ALWAYS or is_recovered(self._plan, event):
            self._print(describe(event))
        elif event["kind"] == "ended":  # the job ends while others still run
            self._end(now)
        elif self._is_due() and now - self._last_s >= LINE_EVERY_S:
            self._print_state(now)

    def _is_due(self) -> bool:
        """Return whether another tenth is complete; always true for a program, whose length is unknown."""
        total = self._state.total
        return not total or self._state.completed * 10 // total > self._tenth

    def _print_state(self, now: float) -> None:
        self._last_s = now
        self._shown = self._state.completed
        self._tenth = self._shown * 10 // max(1, self._state.total)
        self._print(f"{one_line(self._state)}  {self._left(now)}".rstrip())

    def _print(self, text: str) -> None:
        print(self._run_clock.line(f"{self._job}{text}"), file=self._out, flush=True)


class LiveTable(_Estimating):
    """Shows one row per data centre, the stage, and a progress bar with an estimate."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        from rich.live import Live

        super().__init__(plan, clock)
        self._title = plan.title
        self._progress = look.progress_bar("rounds,")
        self._task = self._progress.add_task("starting", total=self._state.total or None, left="")
        self._live = Live(console=look.console(), get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        now = self._take(event)
        self._progress.update(
            self._task, completed=self._state.completed, description=self._state.stage, left=self._left(now)
        )
        if event["kind"] == "warning" or is_recovered(self._plan, event):
            self._live.console.print(describe(event), style="yellow")

    def _render(self) -> Any:
        from rich.console import Group

        return Group(site_table(self._state, self._title), self._progress)


class NotebookTable(Display):
    """Shows one row per data centre. The table is replaced at most four times a second, and removed at the end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._state = state.initial(plan)
        self._title = plan.title
        self._shown_s = 0.0
        self._warnings: list[str] = []

    def __enter__(self) -> NotebookTable:
        from IPython.display import HTML, display

        self._handle = display(HTML(self._html()), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        from IPython.display import HTML

        self._handle.update(HTML(html_of(*self._warnings) if self._warnings else ""))

    def show(self, event: Event) -> None:
        from IPython.display import HTML

        self._state.take(event)
        if event["kind"] == "warning" or is_recovered(self._plan, event):
            self._warnings.append(describe(event))
        if time.monotonic() - self._shown_s >= _NOTEBOOK_S:
            self._handle.update(HTML(self._html()))
            self._shown_s = time.monotonic()

    def _html(self) -> str:
        return html_of(site_table(self._state, self._title), f"{self._state.stage}  {one_line(self._state)}")


def choose(plan: Plan, *, as_json: bool, quiet: bool) -> Display:
    """Return the display that fits standard output. With ``quiet``, nothing is shown, even with ``as_json``."""
    if quiet:
        return Display()
    if as_json:
        return JsonLines(sys.stdout)
    if is_notebook():
        return NotebookTable(plan)
    clock = time.monotonic
    return LiveTable(plan, clock) if sys.stdout.isatty() else PlainLines(plan, sys.stdout, clock)


def choose_for_job(plan: Plan, job: str, *, as_json: bool, quiet: bool) -> Display:
    """Return the display for one of several jobs: lines that name the job, as a live table has room for one run."""
    if quiet:
        return Display()
    return JsonLines(sys.stdout, job) if as_json else PlainLines(plan, sys.stdout, time.monotonic, job)


class Logged(Display):
    """Passes events to another display, and writes all except frequent ones to ``log`` in the run directory.

    Evaluations are written in the format of GeoMX' demos, with the time at which the evaluated values were copied. If
    the other display can no longer be written to, the run goes on without it: Ctrl-C may also end the reader of a pipe
    (``tee``), someone may close the terminal of a run in the background, and a disk may become full.
    """

    def __init__(self, inner: Display, path: Path, plan: Plan) -> None:
        self._inner = inner
        self._run_clock = RunClock(plan)
        self._file = open(path, "a", encoding="utf-8", buffering=1)

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._inner.__exit__(*error)
        with suppress(OSError):  # of a full disk; ``show`` has raised it already
            self._file.close()

    def show(self, event: Event) -> None:
        self._run_clock.take(event)
        if event["kind"] not in ("status", "round"):
            try:
                print(self._run_clock.line(describe(event)), file=self._file)
            except OSError as error:
                error.filename = self._file.name
                raise
        try:
            self._inner.show(event)
        except OSError:
            self._inner = Display()


def is_recovered(plan: Plan, event: Event) -> bool:
    """Return whether the event is an error after which the run may go on; other errors are printed at the run's end."""
    return event["kind"] == "error" and plan.recovery.on_failure != "abort"


def describe(event: Event) -> str:
    """Return one event as a line of text, without its time."""
    rest = {key: value for key, value in event.items() if key not in ("kind", "name", "t") and value is not None}
    match event["kind"]:
        case "stage":
            return " ".join([str(event["name"]), *(f"{key}={value}" for key, value in rest.items())])
        case "train":
            workers = int(event.get("workers") or 0)
            rounds = event.get("rounds")
            return (
                f"training: {numbers.counted(workers, 'worker')}, at most {numbers.counted(rounds, 'round')}"
                if rounds
                else f"running: {numbers.counted(workers, 'process', 'processes')}"
            )
        case "warning" | "error":
            return f"{event['kind']}: {event.get('message', '')}"
        case "evaluate" if event.get("accuracy") is not None:
            epoch = f"[Epoch {event['epoch']}]" if "epoch" in event else ""
            time_s = float(event.get("snapshot_t", event.get("t", 0.0)))
            return f"[Time {time_s:.3f}]{epoch}[Round {event['round']}] Test Acc {event['accuracy']:.4f}"
        case kind:
            name = "membership epoch" if kind == "epoch" else str(kind)
            return " ".join([name, *(f"{key}={value}" for key, value in rest.items())])


def one_line(known: state.RunState) -> str:
    """Return the state of the whole run as a line of text."""
    moved = f"{numbers.size(known.wan_bytes())} over the WAN"
    if not known.total and not known.train_t:
        return known.stage
    if not known.total and known.loss is None:
        return f"running {numbers.seconds(known.t - known.train_t)}  {moved}"
    steps, samples = known.work()
    drawn = f", {numbers.spanned(*samples, 'sample')}" if any(samples) else ""  # unknown for a user's script
    work = f"{numbers.spanned(*steps, 'step')}{drawn} per {known.maker}"
    parts = [
        _rounds(known) if known.total else f"step {max(0, known.completed - 1)}",
        *([work] if known.total else []),
        *([] if known.loss is None else [f"loss {numbers.short(known.loss)}"]),  # a script need not report a loss
        *([] if known.accuracy is None else [f"accuracy {numbers.share(known.accuracy)}"]),
        moved,
    ]
    if known.simulated_rate:
        parts.append(f"{numbers.short(known.simulated_rate)} times real time")
    return "  ".join(parts)


def _rounds(known: state.RunState) -> str:
    """Return the completed rounds. If workers share the rounds, return the mean, and the range over the workers."""
    share = f" on the mean, {numbers.span(*known.rounds())} per worker" if known.shared_by else ""
    return f"{known.completed}/{known.total} rounds{share}"


def site_table(known: state.RunState, title: str) -> Table:
    """Return a table with one row per data centre; if there are very many, only those with the fewest rounds."""
    clock = f", virtual time {numbers.seconds(known.t)}" if known.simulated_rate else ""
    rows = list(known.rows.items())
    if len(rows) > ROWS_SHOWN:
        clock += f"; the {ROWS_SHOWN} of {len(rows)} with the fewest rounds"
        rows = sorted(rows, key=lambda row: row[1].completed)[:ROWS_SHOWN]
    shown = look.table(
        title + clock,
        "data centre",
        ">rounds",
        ">steps",
        ">samples",
        ">loss",
        ">accuracy",
        ">WAN up",
        ">WAN down",
        "waits for",
    )
    for name, row in rows:
        shown.add_row(
            name,
            f"{row.completed}",
            *(numbers.span(*ends) for ends in row.ends()),
            numbers.short(row.loss),
            numbers.share(known.accuracy),
            numbers.size(sum(row.of("wan_up_bytes"))),
            numbers.size(sum(row.of("wan_down_bytes"))),
            row.waits,
        )
    return shown
