"""Tables of measurements over time (``topologies.table``): one row per step, and a header that states the units.

A table has columns of rates, delays, round trips (half of which is the delay) or losses. A file of several links also
has columns of their two ends. A value holds from the time of its row on. If the last row has the value ``end``, the
trace ends, and may repeat, at its time. Otherwise the last value is assumed to last for the median step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from topologies.table import Column, Row, Table, read_table
from topologies.text_file import TextFile
from topologies.traces.model import UNITS, WHAT, Reading, Trace, finish, typical_step_s

END = "end"
ROLES_OF = {"rate": ("rate",), "delay": ("delay", "rtt"), "loss": ("loss",)}
_PAIRS_NAMED = 12


def parse(file: TextFile, reading: Reading) -> Trace:
    """Parse the only column of ``reading.what``, for the pair ``reading.source`` and ``reading.target``."""
    table = read_table(file, dict(reading.columns))
    table.needed("time", "time")
    column = table.needed(reading.what, *ROLES_OF[reading.what])
    trace = trace_of(table, _of_pair(table, reading), column, reading)
    scale = None if column.scale is None else column.scale * (0.5 if column.role == "rtt" else 1.0)
    unit = next((name for name, factor in UNITS[reading.what].items() if factor == scale), column.name)
    return replace(trace, unit=unit, notes=(*table.notes, *trace.notes))


@dataclass(frozen=True, slots=True)
class NetworkTraces:
    """The traces of a file.

    name    of the file
    traces  by (source, target, quantity)
    notes   assumptions made when reading the file
    """

    name: str
    traces: dict[tuple[str, str, str], Trace]
    notes: tuple[str, ...] = ()


def read_network_traces(path: Path, columns: Mapping[str, str] | None = None) -> NetworkTraces:
    """Read all traces of a file. Raise ``ScenarioError`` that names file, line and cure."""
    file = TextFile.read(path)
    if not file.rows:
        file.refuse(None, "no rows", "the file is empty, or holds comments only")
    table = read_table(file, columns)
    for role in ("from", "to"):
        if table.column(role) is None:
            table.refuse("has no columns 'src' and 'dst'", "write 'time_s,src,dst,rate_mbit_s'")
    table.needed("time", "time")
    found = {what: column for what in WHAT if (column := table.column(*ROLES_OF[what])) is not None}
    if not found:
        table.refuse("has no column of rates, delays or losses", "write 'time_s,src,dst,rate_mbit_s'")
    traces = {
        (*pair, what): trace_of(table, chosen, column, Reading(what=what))
        for pair, chosen in table.pairs().items()
        for what, column in found.items()
    }
    return NetworkTraces(file.name, traces, table.notes)


def trace_of(table: Table, chosen: list[Row], column: Column, reading: Reading) -> Trace:
    """Make a trace from a column of the chosen rows. Raise ``ScenarioError`` if it is invalid.

    Rows without a value are left out; the first value holds from 0 s on.
    """
    file = table.file
    notes = list[str]()
    _check_order(table, chosen)
    end_s = chosen[-1].time_s if len(chosen) > 1 and chosen[-1].cells[column.number] == END else None
    chosen = chosen if end_s is None else chosen[:-1]
    found = [(row, value) for row in chosen if (value := table.value(row, column)) is not None]
    if not found:
        file.refuse(None, "has 0 rows below the header", "add one per step: time, value")
    if len(found) < len(chosen):
        missing = len(chosen) - len(found)
        rows = "1 row" if missing == 1 else f"{missing} rows"
        notes.append(f"{rows} without a {reading.what} {'was' if missing == 1 else 'were'} left out")
    for row, value in found:
        if reading.what == "rate" and not value >= 0:
            file.refuse(row.line, "a rate must not be below 0", "an outage is a rate of 0")
    times = [row.time_s for row, _ in found]
    length_s = times[-1] + typical_step_s(times) if end_s is None else end_s
    if times[0] > 0:
        notes.append(f"it begins {times[0]:g} s after the first row: its first value holds from 0 s on")
        times[0] = 0.0
    lines = [row.line for row, _ in found]
    return finish(file, times, [value for _, value in found], lines, reading, length_s, tuple(notes))


def _of_pair(table: Table, reading: Reading) -> list[Row]:
    wanted = (reading.source, reading.target)
    pairs = table.pairs()
    if [*pairs] == [("", "")]:
        if wanted != (None, None):
            table.refuse("has no columns 'src' and 'dst' to choose from", "remove 'from' and 'to'")
        return table.rows
    if wanted == (None, None) and len(pairs) <= 1:
        return table.rows
    if wanted not in pairs:
        (a, b), *_ = pairs
        named = ", ".join(f"{a}>{b}" for a, b in [*pairs][:_PAIRS_NAMED]) + (", …" if len(pairs) > _PAIRS_NAMED else "")
        what = f"no rows from '{reading.source}' to '{reading.target}'" if any(wanted) else f"holds {len(pairs)} links"
        table.refuse(f"{what}; it has {named}", f"choose one with 'from' and 'to', e.g. from: {a}, to: {b}")
    return pairs[str(reading.source), str(reading.target)]


def _check_order(table: Table, chosen: list[Row]) -> None:
    if not chosen:
        table.file.refuse(None, "has 0 rows below the header", "add one per step: time, value")
    time = table.needed("time", "time")
    for before, after in pairwise(chosen):
        if after.time_s <= before.time_s:
            earlier, later = (row.cells[time.number] for row in (before, after))
            problem = f"time {later} does not come after {earlier}"
            table.file.refuse(after.line, problem, "sort the rows, remove repeated ones")
