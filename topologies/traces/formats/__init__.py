"""The table of trace formats, the detection of a file's format, and the reading of a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from testbed.axes import Axis, AxisError
from topologies.table import is_header
from topologies.text_file import TextFile
from topologies.traces.formats import columns, iperf3, mahimahi, own, skyplane
from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import TIME_UNITS, UNITS, Reading, Trace

_NUMBER = r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"


def _format(
    name: str, about: str, parse: Callable[[TextFile, Reading], Trace], **declared: object
) -> type[TraceFormat]:
    return type(name, (TraceFormat,), {"about": about, "parse": staticmethod(parse), **declared})


_PAIR = ("from", "to")
_RATE = ("rate",)
_BYTES = {"rate": "bytes/s"}
_SHIPPED: dict[str, type[TraceFormat]] = {
    "csv": _format(
        "Csv",
        "header 'time_s,rate_mbit_s' (or rate_kbit_s, delay_ms, rtt_ms, loss, src, dst …)",
        own.parse,
        takes=(*_PAIR, "columns"),
    ),
    "mahimahi": _format(
        "Mahimahi",
        "one integer a line: a millisecond at which one packet may pass",
        mahimahi.parse,
        holds=_RATE,
        takes=("step",),
        loops=True,
        units={"rate": "packets of 1500 bytes"},
    ),
    "pensieve": _format(
        "Pensieve",
        "two columns: seconds, Mbit/s until then",
        columns.parse_pensieve,
        takes=("unit", "time_unit"),
        loops=True,
        units={"rate": "Mbit/s", "delay": "ms", "loss": "share"},
    ),
    "fcc": _format(
        "Fcc",
        "one number a line: bytes/s for 5 s",
        columns.parse_fcc,
        holds=_RATE,
        takes=("unit", "step"),
        loops=True,
        units=_BYTES,
    ),
    "fcc-raw": _format(
        "FccRaw",
        "FCC's curr_webget.csv: unit, time, target, address, fetch time, bytes, bytes/s",
        columns.parse_fcc_raw,
        holds=_RATE,
        takes=("unit", "step", *_PAIR),
        loops=True,
        units=_BYTES,
    ),
    "hsdpa": _format(
        "Hsdpa",
        "six columns: unix s, ms, latitude, longitude, bytes, ms (Norway's 3G, Belgium's 4G)",
        columns.parse_hsdpa,
        holds=_RATE,
        loops=True,
        units={"rate": "bytes, ms"},
    ),
    "iperf3": _format("Iperf3", "JSON of iperf3 -J", iperf3.parse, units={"rate": "bit/s", "delay": "us", "loss": "%"}),
    "skyplane": _format(
        "Skyplane",
        "Skyplane's throughput or latency grid; give the pair",
        skyplane.parse,
        takes=("unit", *_PAIR),
        units={"rate": "bit/s", "delay": "ms"},
    ),
}
FORMATS: Axis[TraceFormat] = Axis("trace", _SHIPPED, base=TraceFormat)


def read_trace(path: Path, reading: Reading | None = None) -> Trace:
    """Read the trace of a file. Raise ``ScenarioError`` that names file, line and cure."""
    return _parse(TextFile.read(path), reading or Reading())


def parse_trace(text: str, name: str, reading: Reading | None = None) -> Trace:
    """Parse the text of a file called ``name``; see ``read_trace``."""
    return _parse(TextFile.of(name, text), reading or Reading())


def _parse(file: TextFile, reading: Reading) -> Trace:
    if not file.rows:
        file.refuse(None, "no rows", "the file is empty, or holds comments only")
    _check_units(file, reading)
    kind = reading.format or detect(file)
    try:
        chosen = FORMATS[kind]
    except AxisError as error:
        file.refuse(None, f"format {error.problem}", error.hint)
    _check_settings(file, reading, kind)
    trace = chosen.parse(file, reading)
    how = "given" if reading.format else "detected"
    read_as = f"read as {kind} ({how}): {chosen.about}"
    period = trace.length_s if chosen.loops else trace.period_s
    unit = trace.unit or reading.unit or chosen.units.get(reading.what, "")
    return replace(trace, format=kind, period_s=period, unit=unit, notes=(read_as, *trace.notes))


def _check_units(file: TextFile, reading: Reading) -> None:
    for key, value, known in (
        ("unit", reading.unit, UNITS[reading.what]),
        ("time_unit", reading.time_unit, TIME_UNITS),
    ):
        if value is not None and value not in known:
            file.refuse(None, f"{key} '{value}' does not fit a {reading.what}", f"one of {', '.join(known)}")


def _check_settings(file: TextFile, reading: Reading, kind: str) -> None:
    """Refuse a quantity that the format cannot hold, and settings that have no effect on it."""
    if reading.what not in FORMATS[kind].holds:
        file.refuse(None, f"the format {kind} has no {reading.what}", "give another 'format'")
    given = {
        "unit": reading.unit,
        "time_unit": reading.time_unit,
        "step": reading.step_s,
        "from": reading.source,
        "to": reading.target,
        "columns": reading.columns or None,
    }
    for key, value in given.items():
        if value is not None and key not in FORMATS[kind].takes:
            states = "the header states it: rename the column, or write 'columns: {rate: NAME in Mbit/s}'"
            cure = states if kind == "csv" and "unit" in key else "remove it"
            file.refuse(None, f"'{key}' has no effect on the format {kind}", cure)


def detect(file: TextFile) -> str:
    """Return the format of a file. Raise ``ScenarioError`` if its first lines do not tell the format."""
    line, first = file.rows[0]
    if first[0] in "{[":
        return "iperf3"
    lower = first.lower().replace(" ", "")
    if "src_region" in lower:
        return "skyplane"
    if lower.startswith("unit_id,") or re.match(r"[0-9]+,[0-9]{4}-[0-9]{2}-[0-9]{4}:[0-9]{2}", lower):
        return "fcc-raw"
    if is_header(first):
        return "csv"
    if "," in first:
        cure = "write 'time_s,rate_mbit_s' above it, with the units of the file, or give 'format'"
        file.refuse(line, f"columns without a header: '{first[:40]}'", cure)
    cells = first.split()
    if not all(re.fullmatch(_NUMBER, cell) for cell in cells) or len(cells) not in (1, 2, 6):
        known = "; ".join(f"{name}: {entry.about}" for name, entry in FORMATS.items())
        file.refuse(line, f"not a known trace format: '{first[:40]}'", f"give 'format'. {known}")
    likely = {1: _of_one_column(file), 2: "pensieve", 6: "hsdpa"}[len(cells)]
    cure = f"give 'format: {likely}' if it is {FORMATS[likely].about}; or write a header, e.g. 'time_s,rate_mbit_s'"
    return file.refuse(line, f"numbers without a header, whose units are unknown: '{first[:40]}'", cure)


def _of_one_column(file: TextFile) -> str:
    """Return ``mahimahi`` or ``fcc``: Mahimahi's times are whole numbers that never fall, but FCC's rates do fall."""
    values = [text for _, text in file.rows[:2000]]
    whole = all(re.fullmatch(r"[0-9]+", text) for text in values)
    rising = whole and all(float(a) <= float(b) for a, b in pairwise(values))
    return "mahimahi" if rising else "fcc"
