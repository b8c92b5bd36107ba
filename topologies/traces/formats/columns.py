"""Formats of numbers in columns without units: Pensieve's, FCC's and Norway's. Implausible values are refused.

Sources: traces/ of github hongzimao/pensieve; Riiser et al., "Commute path bandwidth traces from 3G networks", MMSys
2013; FCC, Measuring Broadband America.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from topologies.text_file import TextFile
from topologies.traces.model import Reading, Trace, from_durations

FCC_STEP_S = 5.0
MOST_MBIT = 1000.0  # Pensieve's traces were measured on phones and in homes
LONGEST_STEP_S = 60.0


def parse_pensieve(file: TextFile, reading: Reading) -> Trace:
    """Parse lines of seconds and Mbit/s. As in Pensieve's simulator, a rate holds from the time of the previous line to
    that of its own."""
    rows = list(file.numbers(2, "two numbers, seconds and Mbit/s", "one pair a line, separated by a blank"))
    if len(rows) < 2:
        file.refuse(rows[0][0], "has one line", "at least two are needed: a rate holds from one line to the next")
    time_scale = reading.time_scale("s")
    for (_, before), (line, now) in pairwise(rows):
        if now[0] <= before[0]:
            file.refuse(
                line, f"time {now[0]:g} does not come after {before[0]:g}", "sort the lines, remove repeated ones"
            )
    steps_s = [(now[0] - before[0]) * time_scale for (_, before), (_, now) in pairwise(rows)]
    if reading.time_unit is None and median(steps_s) > LONGEST_STEP_S:
        problem = f"the time rises by {median(steps_s):g} a line: milliseconds?"
        file.refuse(
            rows[1][0], problem, "Pensieve's are seconds; give 'time_unit: ms', or 'time_unit: s' if that is right"
        )
    if reading.what == "rate" and reading.unit is None:
        _check_mbit(file, rows)
    scale = reading.scale("Mbit/s" if reading.what == "rate" else "ms" if reading.what == "delay" else "share")
    steps = [(line, step_s, row[1] * scale) for (line, row), step_s in zip(rows[1:], steps_s, strict=True)]
    return from_durations(file, steps, reading)


def _check_mbit(file: TextFile, rows: list[tuple[int, list[float]]]) -> None:
    """Refuse rates that are too high for Mbit/s: they are probably kbit/s, bytes/s or bit/s."""
    middle = median(row[1] for _, row in rows)
    if middle <= MOST_MBIT:
        return
    line, row = next((line, row) for line, row in rows if row[1] >= middle)
    likely = "kbit/s" if middle < 1e5 else "bytes/s' or 'unit: bit/s"
    file.refuse(
        line,
        f"{row[1]:g} Mbit/s, and half of the lines are above {middle:g}: another unit?",
        f"Pensieve's are Mbit/s; give 'unit: {likely}', or 'unit: Mbit/s' if that is right",
    )


def parse_fcc(file: TextFile, reading: Reading) -> Trace:
    """Parse one number per line: bytes per second, by default for 5 seconds each."""
    rows = list(file.numbers(1, "one number, bytes/s", "one throughput a line"))
    if reading.unit is None and median(row[0] for _, row in rows) < 1000:
        problem = f"half of the lines are below {median(row[0] for _, row in rows):g} bytes/s: Mbit/s?"
        file.refuse(rows[0][0], problem, "FCC's are bytes/s; give 'unit: Mbit/s', or 'unit: bytes/s' if that is right")
    return _steps_of_5_s(file, [(line, row[0] * reading.scale("bytes/s")) for line, row in rows], reading)


def parse_fcc_raw(file: TextFile, reading: Reading) -> Trace:
    """Parse the rates of one unit and target in curr_webget.csv: the seventh column, 5 s per line as in Pensieve."""
    found: list[tuple[int, float]] = []
    pairs: dict[tuple[str, str], int] = {}
    for line, text in file.rows:
        cells = [cell.strip().strip('"') for cell in text.split(",")]
        if cells[0] == "unit_id":
            continue
        if len(cells) < 7:
            file.refuse(line, f"has {len(cells)} columns, expected at least 7", "unit_id,dtime,target,…,bytes_sec")
        if reading.source in (None, cells[0]) and reading.target in (None, cells[2]):
            pairs[cells[0], cells[2]] = line
            problem = f"expected a number, got '{cells[6][:40]}'"
            rate = file.number(line, cells[6], problem, "the seventh column is bytes_sec")
            found.append((line, rate * reading.scale("bytes/s")))
    if not found:
        file.refuse(None, f"no unit '{reading.source}' with target '{reading.target}'", "look at columns 1 and 3")
    if len(pairs) > 1:
        (unit, target), *_ = pairs
        cure = f"choose one with 'from' and 'to', e.g. from: '{unit}', to: '{target}'"
        file.refuse(min(pairs.values()), f"holds {len(pairs)} pairs of unit and target", cure)
    return _steps_of_5_s(file, found, reading)


def parse_hsdpa(file: TextFile, reading: Reading) -> Trace:
    """Parse logs from Norway or Belgium: the last two columns are bytes, and the milliseconds of their transfer."""
    what = "six numbers: unix s, ms since the start, latitude, longitude, bytes, ms"
    rows = list(file.numbers(6, what, "or give another 'format'"))
    for (_, before), (line, now) in pairwise(rows):
        if now[1] <= before[1]:
            file.refuse(
                line, f"{now[1]:g} ms does not come after {before[1]:g} ms", "cut the file here: the log restarted"
            )
    for line, row in rows:
        if row[0] > 1e11:
            file.refuse(line, f"{row[0]:g} in the first column: unix time in ms?", "it must be seconds; divide by 1000")
        if row[5] <= 0 or row[4] < 0:
            file.refuse(
                line, f"{row[4]:g} bytes in {row[5]:g} ms", "the last two columns are bytes and ms; remove the line"
            )
    steps = [(line, row[5] / 1000, row[4] * 8000 / row[5]) for line, row in rows]
    elapsed_s = (rows[-1][1][1] - rows[0][1][1] + rows[0][1][5]) / 1000
    counted_s = sum(step[1] for step in steps)
    notes = (
        ()
        if abs(elapsed_s - counted_s) <= 0.05 * counted_s
        else (f"the log lasts {elapsed_s:g} s, its intervals {counted_s:g} s; gaps are left out",)
    )
    return from_durations(file, steps, reading, notes)


def _steps_of_5_s(file: TextFile, rows: list[tuple[int, float]], reading: Reading) -> Trace:
    step_s = reading.step_s or FCC_STEP_S
    return from_durations(file, [(line, step_s, rate) for line, rate in rows], reading, (f"{step_s:g} s a line",))
