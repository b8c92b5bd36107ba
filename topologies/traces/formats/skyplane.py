"""Skyplane's grids: one line per pair of regions, with ``throughput_sent`` (bit/s) or ``avg_rtt`` (ms)."""

from __future__ import annotations

import csv
import io
from statistics import median

from topologies.traces.model import Reading, TextFile, Trace, from_durations

_COLUMNS = {"rate": ("throughput_sent", "throughput_received"), "delay": ("avg_rtt", "min_rtt")}


def parse(file: TextFile, reading: Reading) -> Trace:
    """Return a constant: the median of the measurements from ``source`` to ``target``."""
    header = next(csv.reader([file.rows[0][1]]))
    missing = [name for name in ("src_region", "dst_region") if name not in header]
    if missing:
        file.refuse(file.rows[0][0], f"has no column {missing[0]}", "keep Skyplane's header")
    column = next((name for name in _COLUMNS.get(reading.what, ()) if name in header), None)
    if column is None:
        problem = f"has no column for a {reading.what}"
        file.refuse(file.rows[0][0], problem, "throughput_sent for a rate, avg_rtt for a delay")
    if reading.source is None or reading.target is None:
        file.refuse(file.rows[0][0], "holds many pairs", "choose one with 'from' and 'to', e.g. from: aws:us-east-1")
    found = _measured(file, header, column, reading)
    if not found:
        problem = f"no successful measurement from '{reading.source}' to '{reading.target}'"
        file.refuse(None, problem, "look at the columns src_region and dst_region")
    value = median(value for _, value in found)
    scaled = value * reading.scale("bit/s") if reading.what == "rate" else value * reading.scale("ms") / 2
    if reading.what == "rate" and reading.unit is None and value < 1e5:
        file.refuse(found[0][0], f"{value:g} bit/s between clouds: another unit?", "Skyplane's are bit/s; give 'unit'")
    note = f"{column}, median of {len(found)} measurements" + ("" if reading.what == "rate" else ", halved")
    return from_durations(file, [(found[0][0], 1.0, scaled)], reading, (note,))


def _measured(file: TextFile, header: list[str], column: str, reading: Reading) -> list[tuple[int, float]]:
    found = []
    for line, text in file.rows[1:]:
        cells = next(csv.reader(io.StringIO(text)))
        if len(cells) != len(header):
            file.refuse(line, f"has {len(cells)} columns, the header {len(header)}", "correct or remove the line")
        row = dict(zip(header, cells, strict=True))
        if (row["src_region"], row.get("dst_region")) != (reading.source, reading.target):
            continue
        if row.get("success", "True").lower() == "false" or not row[column]:
            continue
        problem = f"expected a number in {column}, got '{row[column][:40]}'"
        found.append((line, file.number(line, row[column], problem, "correct or remove the line")))
    return found
