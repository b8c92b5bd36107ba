"""Rates over time from CSV files.

A file has a header line and two columns: ``time_s`` and one of ``rate_bit_s``, ``rate_kbit_s``, ``rate_mbit_s``.
A row's rate holds from its time on. Lines that start with ``#`` are comments (source and licence belong there).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import ScenarioError

MAX_ROWS = 5_000
MAX_FILE_BYTES = 1 << 20
_SCALES = {"rate_bit_s": 1.0, "rate_kbit_s": 1e3, "rate_mbit_s": 1e6}


@dataclass(frozen=True, slots=True)
class Trace:
    """``values[i]`` holds from ``times_s[i]`` on; times rise strictly from 0."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]


def read_rate_csv(path: Path) -> Trace:
    """The rates of a CSV file, in bit/s. Raises ``ScenarioError`` that names file and line."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioError(f"{path.name}: more than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path.name}: not valid UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise ScenarioError(f"{path.name}: {error.strerror}") from error
    return parse_rate_csv(text.splitlines(), path.name)


def parse_rate_csv(lines: Iterable[str], name: str) -> Trace:
    """As ``read_rate_csv``, from the lines of a file called ``name``."""
    rows = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    rows = [(number, line) for number, line in rows if line and not line.startswith("#")]
    if not rows:
        raise ScenarioError(f"{name}: no rows")
    scale = _scale(rows[0][1], f"{name}:{rows[0][0]}")
    if not 1 <= len(rows) - 1 <= MAX_ROWS:
        raise ScenarioError(f"{name}: has {len(rows) - 1} rows, allowed 1 to {MAX_ROWS} (resample it)")
    points = [_row(line, f"{name}:{number}") for number, line in rows[1:]]
    _check_times([time_s for time_s, _ in points], [number for number, _ in rows[1:]], name)
    return Trace(tuple(time_s for time_s, _ in points), tuple(rate * scale for _, rate in points))


def _scale(header: str, where: str) -> float:
    columns = [column.strip() for column in header.split(",")]
    if len(columns) != 2 or columns[0] != "time_s" or columns[1] not in _SCALES:
        raise ScenarioError(f"{where}: expected the header 'time_s,rate_mbit_s' (or rate_kbit_s, rate_bit_s)")
    return _SCALES[columns[1]]


def _row(line: str, where: str) -> tuple[float, float]:
    try:
        time_s, rate = (float(cell) for cell in line.split(","))
    except ValueError as error:
        raise ScenarioError(f"{where}: expected two numbers") from error
    if not (math.isfinite(time_s) and math.isfinite(rate) and rate > 0):
        raise ScenarioError(f"{where}: time must be finite and rate above 0")
    return time_s, rate


def _check_times(times_s: list[float], numbers: list[int], name: str) -> None:
    if times_s[0] != 0:
        raise ScenarioError(f"{name}:{numbers[0]}: the first time must be 0")
    for before, after, number in zip(times_s, times_s[1:], numbers[1:], strict=False):
        if after <= before:
            raise ScenarioError(f"{name}:{number}: time {after:g} does not come after {before:g}")
