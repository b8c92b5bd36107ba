"""The testbed's CSV: a header that states the units, one row per step, comment lines that start with #.

Columns: ``time_s`` (or t_s, time_ms); one or more of rate_bit_s, rate_kbit_s, rate_mbit_s, rate_gbit_s, delay_s,
delay_ms, rtt_ms, loss (share), loss_percent; and, for a file of many links, ``src`` and ``dst``. A row's value holds
from its time on; the last one stays. A last row with ``end`` for its value tells when the trace ends, from where it may
repeat; without it, the last value is assumed to last for the median step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from testbed.units import parse_float
from topologies.traces.model import UNITS, WHAT, Reading, TextFile, Trace, finish, typical_step_s

END = "end"
TIME_COLUMNS = {"time_s": 1.0, "t_s": 1.0, "time_ms": 1e-3}
COLUMNS = {
    "rate_bit_s": ("rate", 1.0), "rate_kbit_s": ("rate", 1e3),
    "rate_mbit_s": ("rate", 1e6), "rate_gbit_s": ("rate", 1e9),
    "delay_s": ("delay", 1.0), "delay_ms": ("delay", 1e-3), "rtt_s": ("delay", 0.5), "rtt_ms": ("delay", 0.5e-3),
    "loss": ("loss", 1.0), "loss_percent": ("loss", 0.01),
}  # fmt: skip
_HINTS = {
    "rate_mbps": "rate_mbit_s", "rate_kbps": "rate_kbit_s", "rate_bps": "rate_bit_s", "rate": "rate_mbit_s",
    "delay": "delay_ms", "rtt": "rtt_ms", "time": "time_s", "t": "time_s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """The columns of a file, from its header: names, number and unit (in s) of the time column."""

    names: tuple[str, ...]
    time: int
    time_scale: float

    def values(self, what: str) -> list[tuple[int, float]]:
        """Return number and scale of every column of ``what``."""
        known = ((number, COLUMNS[name]) for number, name in enumerate(self.names) if name in COLUMNS)
        return [(number, scale) for number, (kind, scale) in known if kind == what]


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line; ``values`` by column number."""

    line: int
    cells: tuple[str, ...]
    time_s: float

    def number(self, file: TextFile, column: int) -> float:
        """Return a cell as a finite number. Raise ``ScenarioError``."""
        return _number(file, self.line, self.cells[column], len(self.cells))


def parse(file: TextFile, reading: Reading) -> Trace:
    """Parse the one column of ``reading.what``, of the one pair ``reading.source`` to ``reading.target``."""
    table = header(file)
    column, scale = only_column(file, table, reading.what)
    chosen = _of_pair(file, table, rows(file, table), reading)
    unit = next((name for name, factor in UNITS[reading.what].items() if factor == scale), table.names[column])
    return replace(trace_of(file, chosen, column, scale, reading), unit=unit)


@dataclass(frozen=True, slots=True)
class NetworkTraces:
    """Traces by (source, target, what), and the file's name."""

    name: str
    traces: dict[tuple[str, str, str], Trace]


def read_network_traces(path: Path) -> NetworkTraces:
    """Read all traces of a file. Raise ``ScenarioError`` that names file, line and cure."""
    file = TextFile.read(path)
    if not file.rows:
        file.refuse(None, "no rows", "the file is empty, or holds comments only")
    table = header(file)
    if "src" not in table.names or "dst" not in table.names:
        file.refuse(file.rows[0][0], "has no columns 'src' and 'dst'", "write 'time_s,src,dst,rate_mbit_s'")
    src, dst = table.names.index("src"), table.names.index("dst")
    columns = [(what, *only_column(file, table, what)) for what in WHAT if table.values(what)]
    if not columns:
        file.refuse(file.rows[0][0], "has no column of rates, delays or losses", "write 'time_s,src,dst,rate_mbit_s'")
    by_pair: dict[tuple[str, str], list[TraceRow]] = {}
    for row in rows(file, table):
        by_pair.setdefault((row.cells[src], row.cells[dst]), []).append(row)
    traces = {
        (*pair, what): trace_of(file, chosen, column, scale, Reading(what=what))
        for pair, chosen in by_pair.items()
        for what, column, scale in columns
    }
    return NetworkTraces(file.name, traces)


def only_column(file: TextFile, table: TraceColumns, what: str) -> tuple[int, float]:
    """Return number and scale of the column of ``what``. Raise ``ScenarioError`` for none, or several."""
    columns = table.values(what)
    if len(columns) != 1:
        has = "no column" if not columns else f"{len(columns)} columns"
        wanted = ", ".join(name for name, (kind, _) in COLUMNS.items() if kind == what)
        file.refuse(file.rows[0][0], f"has {has} for a {what}", f"one of {wanted}")
    return columns[0]


def trace_of(file: TextFile, chosen: list[TraceRow], column: int, scale: float, reading: Reading) -> Trace:
    """Make a trace of one column of some rows. Raise ``ScenarioError``."""
    if not chosen:
        file.refuse(None, "has 0 rows below the header", "add one per step: time, value")
    _check_times(file, chosen)
    end_s = chosen[-1].time_s if len(chosen) > 1 and chosen[-1].cells[column] == END else None
    chosen = chosen if end_s is None else chosen[:-1]
    times = [row.time_s for row in chosen]
    values = [row.number(file, column) * scale for row in chosen]
    for row, value in zip(chosen, values, strict=True):
        if reading.what == "rate" and not value >= 0:
            file.refuse(row.line, "a rate must not be below 0", "an outage is a rate of 0")
    length_s = times[-1] + typical_step_s(times) if end_s is None else end_s
    return finish(file, times, values, [row.line for row in chosen], reading, length_s, ())


def header(file: TextFile) -> TraceColumns:
    """Return the columns. Raise ``ScenarioError`` for unknown ones."""
    line, text = file.rows[0]
    names = tuple(name.strip().lower() for name in text.split(","))
    times = [number for number, name in enumerate(names) if name in TIME_COLUMNS]
    unknown = [
        name for name in names if name not in TIME_COLUMNS and name not in COLUMNS and name not in ("src", "dst")
    ]
    if unknown:
        cure = f"write '{_HINTS[unknown[0]]}'" if unknown[0] in _HINTS else f"time_s, src, dst, {', '.join(COLUMNS)}"
        file.refuse(line, f"unknown column '{unknown[0][:40]}'", cure)
    if len(times) != 1 or len(set(names)) != len(names):
        file.refuse(line, "expected the header 'time_s,rate_mbit_s'", "one column of times, none twice")
    return TraceColumns(names, times[0], TIME_COLUMNS[names[times[0]]])


def rows(file: TextFile, table: TraceColumns) -> list[TraceRow]:
    """Return all rows. Raise ``ScenarioError`` for one without as many cells as the header has."""
    found = []
    for line, text in file.rows[1:]:
        cells = tuple(cell.strip() for cell in text.split(","))
        if len(cells) != len(table.names):
            cure = f"{len(table.names)} cells as in the header: {','.join(table.names)}"
            file.refuse(line, _expected(len(table.names)), cure)
        found.append(TraceRow(line, cells, _number(file, line, cells[table.time], len(cells)) * table.time_scale))
    return found


def _of_pair(file: TextFile, table: TraceColumns, found: list[TraceRow], reading: Reading) -> list[TraceRow]:
    if "src" not in table.names or "dst" not in table.names:
        if reading.source is not None or reading.target is not None:
            file.refuse(file.rows[0][0], "has no columns 'src' and 'dst' to choose from", "remove 'from' and 'to'")
        return found
    src, dst = table.names.index("src"), table.names.index("dst")
    pairs = dict.fromkeys((row.cells[src], row.cells[dst]) for row in found)
    wanted = (reading.source, reading.target)
    if wanted == (None, None) and len(pairs) == 1:
        return found
    if wanted not in pairs:
        (a, b), *_ = [*pairs, ("?", "?")]
        what = f"no rows from '{reading.source}' to '{reading.target}'" if any(wanted) else f"holds {len(pairs)} links"
        file.refuse(file.rows[0][0], what, f"choose one with 'from' and 'to', e.g. from: {a}, to: {b}")
    return [row for row in found if (row.cells[src], row.cells[dst]) == wanted]


def _number(file: TextFile, line: int, cell: str, cells: int) -> float:
    try:
        value = parse_float(cell)
    except ValueError:
        file.refuse(line, _expected(cells), f"'{cell[:40]}' is not a number")
    if not math.isfinite(value):
        file.refuse(line, "times and values must be finite", f"'{cell}' is not finite")
    return value


def _expected(cells: int) -> str:
    return "expected two numbers" if cells == 2 else f"expected {cells} cells"


def _check_times(file: TextFile, chosen: list[TraceRow]) -> None:
    if chosen[0].time_s != 0:
        file.refuse(chosen[0].line, "the first time must be 0", "subtract the first time from all")
    for before, after in pairwise(chosen):
        if after.time_s <= before.time_s:
            problem = f"time {after.time_s:g} does not come after {before.time_s:g}"
            file.refuse(after.line, problem, "sort the rows, remove repeated ones")
