"""Write traces: the testbed's CSV for everything, Mahimahi, Pensieve and FCC for rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testbed.errors import ScenarioError
from topologies.traces.change import resampled, steps_of
from topologies.traces.formats import mahimahi
from topologies.traces.formats.columns import FCC_STEP_S
from topologies.traces.model import Trace

_COLUMNS = {"rate": ("rate_mbit_s", 1e6), "delay": ("delay_ms", 1e-3), "loss": ("loss", 1.0)}


def to_text(trace: Trace, kind: str, comments: tuple[str, ...] = ()) -> str:
    """Return the file's text. Raise ``ScenarioError`` if the format cannot hold the trace."""
    if kind not in WRITERS:
        raise ScenarioError(f"'{kind}' cannot be written (one of {', '.join(WRITERS)})")
    if kind != "csv" and trace.what != "rate":
        raise ScenarioError(f"'{kind}' holds rates only, and this is a {trace.what} (write csv)")
    return "".join(f"{line}\n" for line in WRITERS[kind](trace, comments))


def _csv(trace: Trace, comments: tuple[str, ...]) -> Iterator[str]:
    column, scale = _COLUMNS[trace.what]
    yield from (f"# {line}" for line in comments)
    yield f"time_s,{column}"
    for time_s, value in zip(trace.times_s, trace.values, strict=True):
        yield f"{_plain(time_s)},{_plain(value / scale)}"


def _mahimahi(trace: Trace, _: tuple[str, ...]) -> Iterator[str]:
    lines = list(mahimahi.write(steps_of(trace)))
    if not lines:
        raise ScenarioError("not one packet of 1500 bytes passes in the whole trace (scale it, or write csv)")
    yield from lines


def _pensieve(trace: Trace, _: tuple[str, ...]) -> Iterator[str]:
    """Pensieve ignores the first line's rate; each further rate holds until its line's time."""
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
