"""Writes traces: the testbed's CSV for every quantity; Mahimahi, Pensieve and FCC for rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from testbed.errors import ScenarioError
from topologies.traces.change import resampled, steps_of
from topologies.traces.formats import FORMATS, mahimahi
from topologies.traces.formats.columns import FCC_STEP_S
from topologies.traces.formats.own import END
from topologies.traces.model import Trace, typical_step_s

_RESOLUTION_S = 1e-6  # resolution of times
_COLUMNS = {"rate": ("rate_mbit_s", 1e6), "delay": ("delay_ms", 1e-3), "loss": ("loss", 1.0)}


def to_text(trace: Trace, kind: str, comments: tuple[str, ...] = ()) -> str:
    """Return the text of a file in the format ``kind``. Raise ``ScenarioError`` if the format cannot hold the trace."""
    if kind not in WRITERS:
        raise ScenarioError(f"'{kind}' cannot be written (one of {', '.join(WRITERS)})")
    if kind != "csv" and trace.what != "rate":
        raise ScenarioError(f"'{kind}' holds rates only, but this is a {trace.what} (write csv)")
    return "".join(f"{line}\n" for line in WRITERS[kind](trace, comments))


def differences(trace: Trace, kind: str) -> Iterator[str]:
    """Yield how the written file, when read again, differs from the trace, and what to do about it."""
    loops = math.isfinite(trace.period_s)
    if loops and not FORMATS[kind].loops:
        yield f"{kind} cannot say that the trace repeats: write 'loop: true' beside 'file' in the scenario"
    if FORMATS[kind].loops and not loops:
        yield f"{kind} files repeat from their end: write 'loop: false' beside 'file' in the scenario"
    written_s = FCC_STEP_S * len(resampled(trace, FCC_STEP_S).values) if kind == "fcc" else trace.length_s
    if written_s > trace.length_s + _RESOLUTION_S:
        lasts = f"the file lasts {written_s:g} s, but the trace {trace.length_s:g} s"
        yield f"fcc has steps of {FCC_STEP_S:g} s only: {lasts} (to keep that, write csv or pensieve)"


def _csv(trace: Trace, comments: tuple[str, ...]) -> Iterator[str]:
    column, scale = _COLUMNS[trace.what]
    yield from (f"# {line}" for line in comments)
    yield f"time_s,{column}"
    for time_s, value in zip(trace.times_s, trace.values, strict=True):
        yield f"{_plain(time_s)},{_plain(value / scale)}"
    assumed_s = trace.times_s[-1] + typical_step_s(list(trace.times_s))
    if abs(assumed_s - trace.length_s) > _RESOLUTION_S:
        yield f"{_plain(trace.length_s)},{END}"


def _mahimahi(trace: Trace, _: tuple[str, ...]) -> Iterator[str]:
    lines = list(mahimahi.write(steps_of(trace)))
    if not lines:
        raise ScenarioError("not one packet of 1500 bytes passes in the whole trace (scale it, or write csv)")
    last_ms = int(lines[-1])
    end_ms = round(trace.length_s * 1000)
    if end_ms - last_ms > mahimahi.DEFAULT_STEP_S * 1000:  # usually only a fraction of a packet is left at the end
        problem = f"the last packet passes at {last_ms / 1000:g} s, but the trace ends at {trace.length_s:g} s"
        raise ScenarioError(f"{problem}: a mahimahi file ends with its last packet (write csv or pensieve)")
    yield from lines


def _pensieve(trace: Trace, _: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines. Pensieve ignores the rate of the first one; every other holds until the time of its line."""
    yield f"0 {_plain(trace.values[0] / 1e6)}"
    now = 0.0
    for duration_s, rate in steps_of(trace):
        now += duration_s
        yield f"{_plain(round(now, 6))} {_plain(rate / 1e6)}"


def _fcc(trace: Trace, _: tuple[str, ...]) -> Iterator[str]:
    for value in resampled(trace, FCC_STEP_S).values:
        yield _plain(value / 8)


def _plain(value: float) -> str:
    return f"{value:.10g}"


WRITERS: dict[str, Callable[[Trace, tuple[str, ...]], Iterator[str]]] = {
    "csv": _csv,
    "mahimahi": _mahimahi,
    "pensieve": _pensieve,
    "fcc": _fcc,
}
