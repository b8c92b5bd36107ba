"""Skyplane's grids: a line per measurement of two regions, with ``throughput_sent`` (bit/s) or ``avg_rtt`` (ms)."""

from __future__ import annotations

from statistics import median

from topologies.table import Column, Row, Table, read_table
from topologies.text_file import TextFile
from topologies.traces.model import Reading, Trace, from_durations

_COLUMNS = {"rate": ("throughput_sent", "throughput_received"), "delay": ("avg_rtt", "min_rtt")}
_PAIR = {"from": "src_region", "to": "dst_region"}


def parse(file: TextFile, reading: Reading) -> Trace:
    """Return a constant trace: the median of the measurements from ``source`` to ``target``."""
    header = file.rows[0][1].split(",")
    missing = [name for name in _PAIR.values() if name not in header]
    if missing:
        file.refuse(file.rows[0][0], f"has no column {missing[0]}", "keep Skyplane's header")
    name = next((name for name in _COLUMNS.get(reading.what, ()) if name in header), None)
    if name is None:
        problem = f"has no column for a {reading.what}"
        file.refuse(file.rows[0][0], problem, "throughput_sent for a rate, avg_rtt for a delay")
    if reading.source is None or reading.target is None:
        file.refuse(file.rows[0][0], "holds many pairs", "choose one with 'from' and 'to', e.g. from: aws:us-east-1")
    role, unit = ("rate", reading.unit or "bit/s") if reading.what == "rate" else ("rtt", reading.unit or "ms")
    table = read_table(file, {**_PAIR, role: f"{name} in {unit}"})
    column = table.needed(reading.what, role)
    found = _measured(table, column, table.pairs().get((reading.source, reading.target), []))
    if not found:
        problem = f"no successful measurement from '{reading.source}' to '{reading.target}'"
        file.refuse(None, problem, "look at the columns src_region and dst_region")
    value = median(value for _, value in found)
    if reading.what == "rate" and reading.unit is None and value < 1e5:
        file.refuse(found[0][0], f"{value:g} bit/s between clouds: another unit?", "Skyplane's are bit/s; give 'unit'")
    note = f"{name}, median of {len(found)} measurements" + ("" if reading.what == "rate" else ", halved")
    return from_durations(file, [(found[0][0], 1.0, value)], reading, (note,))


def _measured(table: Table, column: Column, rows: list[Row]) -> list[tuple[int, float]]:
    """Return the line and value of every successful measurement."""
    success = table.names.index("success") if "success" in table.names else None
    good = [row for row in rows if success is None or row.cells[success].lower() != "false"]
    return [(row.line, value) for row in good if (value := table.value(row, column)) is not None]
