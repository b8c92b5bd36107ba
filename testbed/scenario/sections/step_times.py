"""Step times of single workers from a CSV file, for more workers than a scenario has room for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import is_null, refuse
from testbed.scenario.reading.section import ReadAs
from testbed.units import parse_float
from topologies.traces.model import TextFile

_UNITS = {"step_time_s": 1.0, "step_time_ms": 1e-3}
_HEADER = "expected the header 'worker,step_time_ms'"
_LONGEST_S = 3600.0


def _read(value: Any, info: ValidationInfo) -> Any:
    """Read ``{file: NAME.csv}``, or what ``_pack`` has written."""
    if is_null(value) or value is None:
        return None
    if isinstance(value, Scalar):
        return _unpacked(value.text)
    if isinstance(value, Mapping) and isinstance(value.get("file"), Scalar) and len(value) == 1:
        try:
            return _of_file(TextFile.read(beside(value["file"].text, info)))
        except ScenarioError as error:
            raise refuse(str(error)) from error
    if isinstance(value, Mapping) and all(isinstance(seconds, float) for seconds in value.values()):
        return dict(value)
    raise refuse("expected a file", "write {file: NAME.csv}")


def _of_file(file: TextFile) -> dict[str, float]:
    if not file.rows:
        file.refuse(None, "no rows", _HEADER)
    line, first = file.rows[0]
    names = [name.strip() for name in first.split(",")]
    if len(names) != 2 or names[0] != "worker" or names[1] not in _UNITS:
        file.refuse(
            line, _HEADER, "or 'worker,step_time_s'; a row is DATA_CENTER/workerN, or DATA_CENTER for all of it"
        )
    times: dict[str, float] = {}
    for line, text in file.rows[1:]:
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != 2:
            file.refuse(line, f"has {len(cells)} cells, the header 2", "one worker a line")
        if cells[0] in times:
            file.refuse(line, f"'{cells[0]}' stands twice", "keep one of them")
        times[cells[0]] = _seconds(file, line, cells[1], _UNITS[names[1]])
    return times


def _seconds(file: TextFile, line: int, cell: str, unit_s: float) -> float:
    try:
        seconds = parse_float(cell) * unit_s
    except ValueError:
        file.refuse(line, f"'{cell[:40]}' is not a number")
    if not 0 < seconds <= _LONGEST_S or math.isnan(seconds):
        file.refuse(line, f"{cell} is outside (0 s, 1 h]")
    return seconds


def _pack(times: Mapping[str, float] | None) -> str | None:
    """Return ``a/worker0 0.05 a/worker1 0.07 …``: one value, for a scenario may have a limited number of them."""
    return None if times is None else " ".join(f"{name} {seconds!r}" for name, seconds in times.items())


def _unpacked(text: str) -> dict[str, float]:
    words = text.split()
    try:
        return {name: parse_float(seconds) for name, seconds in zip(words[::2], words[1::2], strict=True)}
    except ValueError:
        raise refuse("expected names and seconds in turn", "write {file: NAME.csv}") from None


STEP_TIMES: Any = Annotated[
    dict[str, float] | None,
    ReadAs(Annotated[dict[str, float] | None, BeforeValidator(_read)]),
    PlainSerializer(_pack, when_used="json"),
]
