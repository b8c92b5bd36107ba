"""Step times of single workers from a CSV file, for more workers than a scenario has room for."""

from __future__ import annotations

from typing import Any

from testbed.scenario.reading.tables import number_of, rows_of, table
from testbed.units import parse_float
from topologies.traces.model import TextFile

_UNITS = {"step_time_s": 1.0, "step_time_ms": 1e-3}
_HEADER = "expected the header 'worker,step_time_ms'"
_LONGEST_S = 3600.0


def _of_file(file: TextFile) -> dict[str, float]:
    if not file.rows:
        file.refuse(None, "no rows", _HEADER)
    line, first = file.rows[0]
    names = [name.strip() for name in first.split(",")]
    if len(names) != 2 or names[0] != "worker" or names[1] not in _UNITS:
        file.refuse(
            line, _HEADER, "or 'worker,step_time_s'; a row is DATA_CENTER/workerN, or DATA_CENTER for all of it"
        )
    if not file.rows[1:]:
        file.refuse(line, "has no rows below the header", "write one row per worker or data centre: tokyo/worker0,50")
    times: dict[str, float] = {}
    for line, (worker, cell) in rows_of(file, 2, "worker"):
        if worker in times:
            file.refuse(line, f"'{worker}' stands twice", "keep one of them")
        times[worker] = number_of(file, line, cell) * _UNITS[names[1]]
        if not 0 < times[worker] <= _LONGEST_S:
            file.refuse(line, f"{cell} is outside (0 s, 1 h]")
    return times


def _unpacked(text: str) -> dict[str, float]:
    words = text.split()
    times = {name: parse_float(seconds) for name, seconds in zip(words[::2], words[1::2], strict=True)}
    if 2 * len(times) != len(words) or not times or not all(0 < each <= _LONGEST_S for each in times.values()):
        raise ValueError("a name twice, or a time outside (0 s, 1 h]")
    return times


STEP_TIMES: Any = table(
    dict[str, float] | None,
    _of_file,
    (lambda times: " ".join(f"{name} {seconds!r}" for name, seconds in times.items()), _unpacked),
    empty=None,
    what="names, each once, and seconds in (0, 3600] in turn",
)
