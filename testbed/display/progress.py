"""The progress of a run: a live table on a terminal, plain lines elsewhere, JSON lines for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from testbed.display import look, state
from testbed.plan.model import Plan

if TYPE_CHECKING:
    from rich.table import Table

Event = Mapping[str, Any]
Clock = Callable[[], float]
LINE_EVERY_S = 2.0
ROWS_SHOWN = 16  # what a terminal has room for, with the bar below
_ALWAYS = ("stage", "train", "warning", "error")


class Display:
    """Takes progress events between ``__enter__`` and ``__exit__``, and shows nothing; the base of the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def show(self, event: Event) -> None: ...


class JsonLines(Display):
    """Every event as one line of JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: Event) -> None:
        print(json.dumps(dict(event)), file=self._out, flush=True)


class PlainLines(Display):
    """Stages and warnings as they come, and every two seconds the state, if it has changed."""

    def __init__(self, plan: Plan, out: TextIO, clock: Clock) -> None:
        self._state, self._out, self._clock = state.initial(plan), out, clock
        self._start_s = self._last_s = clock()
        self._last_line = ""

    def show(self, event: Event) -> None:
        before = self._state.completed
        self._state.take(event)
        now = self._clock()
        if event["kind"] in _ALWAYS:
            self._print(now, describe(event))
        elif event["kind"] == "evaluate" and event.get("accuracy") is not None:
            self._print(now, score(event, self._state.train_t))
        elif now - self._last_s >= LINE_EVERY_S or before < self._state.completed == self._state.total:
            self._print_state(now)

    def _print_state(self, now: float) -> None:
        line = one_line(self._state)
        if line == self._last_line:
            return
        self._last_line = line
        left_s = state.remaining_s(self._state, now - self._start_s)
        self._print(now, line if left_s is None else f"{line}  at most {look.seconds(left_s)} left")

    def _print(self, now: float, text: str) -> None:
        self._last_s = now
        print(f"[{now - self._start_s:6.1f} s] {text}", file=self._out, flush=True)


class LiveTable(Display):
    """One row per data centre, a line for the stage, and a progress bar with an estimate."""

    def __init__(self, plan: Plan) -> None:
        from rich.live import Live

        self._state = state.initial(plan)
        self._title = f"{plan.name} on {plan.back_end}"
        self._progress = look.progress_bar("at most", "rounds,")
        self._task = self._progress.add_task("starting", total=self._state.total or None)
        self._live = Live(get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        self._state.take(event)
        self._progress.update(self._task, completed=self._state.completed, description=self._state.stage)
        if event["kind"] in ("warning", "error"):
            self._live.console.print(describe(event), style="yellow", markup=False, highlight=False)

    def _render(self) -> Any:
        from rich.console import Group

        return Group(site_table(self._state, self._title), self._progress)


class Logged(Display):
    """Passes events to another display, and writes all but the frequent ones to ``log`` in the run directory."""

    def __init__(self, inner: Display, path: Path, clock: Clock) -> None:
        self._inner, self._clock, self._start_s = inner, clock, clock()
        self._file = open(path, "a", encoding="utf-8", buffering=1)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)
        self._file.close()

    def show(self, event: Event) -> None:
        if event["kind"] not in ("status", "round"):
            print(f"[{self._clock() - self._start_s:8.2f} s] {describe(event)}", file=self._file)
        self._inner.show(event)


def describe(event: Event) -> str:
    """Return one event as a line of text."""
    match event["kind"]:
        case "stage":
            rest = {key: value for key, value in event.items() if key not in ("kind", "name", "t")}
            return " ".join([str(event["name"]), *(f"{key}={value}" for key, value in rest.items())])
        case "train":
            if not event.get("rounds"):
                return f"running: {event.get('workers')} processes"
            return f"training: {event.get('workers')} workers, at most {event.get('rounds')} rounds"
        case "warning" | "error":
            return f"{event['kind']}: {event.get('message', '')}"
        case kind:
            return " ".join([str(kind), *(f"{key}={value}" for key, value in event.items() if key != "kind")])


def score(event: Event, train_t: float) -> str:
    """Return one evaluation in the format of GeoMX' demos; its time is that of the values, from training's start."""
    epoch = f"[Epoch {event['epoch']}]" if "epoch" in event else ""
    time_s = float(event["snapshot_t"]) - train_t
    return f"[Time {time_s:.3f}]{epoch}[Round {event['round']}] Test Acc {event['accuracy']:.4f}"


def one_line(known: state.RunState) -> str:
    """Return the state of the whole run as a line of text."""
    up, down = known.wan_bytes()
    if not known.total and not known.train_t:
        return known.stage
    if not known.total and known.loss is None:
        return f"running {look.seconds(known.t - known.train_t)}  WAN {look.size(up)} up, {look.size(down)} down"
    parts = [
        f"round {known.completed}" + (f"/{known.total}" if known.total else ""), f"loss {look.number(known.loss)}",
        f"accuracy {look.number(known.accuracy)}", f"WAN {look.size(up)} up, {look.size(down)} down",
    ]  # fmt: skip
    if known.simulated_rate:
        parts.append(f"virtual time {look.seconds(known.t)}, {look.short(known.simulated_rate)} times real time")
    return "  ".join(parts)


def site_table(known: state.RunState, title: str) -> Table:
    """Return one row per data centre; of very many, those with the fewest rounds."""
    clock = f", virtual time {look.seconds(known.t)}" if known.simulated_rate else ""
    rows = list(known.rows.items())
    if len(rows) > ROWS_SHOWN:
        clock += f"; the {ROWS_SHOWN} of {len(rows)} with the fewest rounds"
        rows = sorted(rows, key=lambda row: row[1].completed)[:ROWS_SHOWN]
    shown = look.table(
        title + clock, "data centre", ">round", ">loss", ">accuracy", ">WAN up", ">WAN down", "waits for"
    )
    for name, row in rows:
        shown.add_row(
            name, f"{row.completed}", look.number(row.loss), look.number(known.accuracy),
            look.size(sum(row.of("wan_up_bytes"))), look.size(sum(row.of("wan_down_bytes"))), row.waits,
        )  # fmt: skip
    return shown
