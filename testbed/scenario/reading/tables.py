"""Tables from CSV files beside the scenario. Each becomes one value, as a scenario may have only so many values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from testbed.costs import LONGEST_S, Row, read_costs
from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import is_null, refuse
from testbed.scenario.reading.section import ReadAs
from testbed.units import parse_float
from topologies.text_file import TextFile

_LONGEST_S = 3600.0  # limit for a step, or a part of one
_SCHEMA = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}


def table(
    kind: Any,
    of_file: Callable[[TextFile], Any],
    text: tuple[Callable[[Any], str], Callable[[str], Any]],
    *,
    empty: Any,
    what: str,
    made_by: str = "",
) -> ReadAs:
    """Return the reader of ``{file: NAME.csv}``.

    kind     type of the table
    of_file  reads the file; raises ``ScenarioError``
    text     a pair of functions: one turns a table into a text, the other turns the text into the table again, and
             raises ``ValueError``
    empty    the table if none is given
    what     what the text holds, for messages
    made_by  how the file is made, for messages
    """
    write, read_text = text

    def read(value: Any, info: ValidationInfo) -> Any:
        if is_null(value):
            return empty
        if isinstance(value, Scalar):
            try:
                return read_text(value.text)
            except (ValueError, TypeError, AttributeError):
                raise refuse(f"expected {what}", "write {file: NAME.csv}") from None
        if isinstance(value, Mapping) and isinstance(value.get("file"), Scalar) and len(value) == 1:
            try:
                return of_file(TextFile.read(beside(value["file"].text, info)))
            except ScenarioError as error:
                raise refuse(str(error)) from error
        if _is_written(value):
            raise refuse("expected a file", f"write {{file: NAME.csv}}{made_by}")
        return value

    write_text = PlainSerializer(lambda found: found if found is None else write(found), when_used="json")
    return ReadAs(Annotated[kind, BeforeValidator(read), write_text, WithJsonSchema(_SCHEMA)])


def _is_written(value: Any) -> bool:
    """Return whether a value comes from a scenario's text, and is not a table that was already read."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return isinstance(value, Scalar) or any(map(_is_written, parts))


def rows_of(file: TextFile, columns: int, what: str) -> list[tuple[int, list[str]]]:
    """Return line number and cells of every row below the header. ``what`` describes a row in messages."""
    rows = [(line, [cell.strip() for cell in text.split(",")]) for line, text in file.rows[1:]]
    for line, cells in rows:
        if len(cells) != columns:
            file.refuse(line, f"has {len(cells)} cells, the header {columns}", f"one {what} a line")
    return rows


def number_of(file: TextFile, line: int, cell: str) -> float:
    """Return a cell as a number, which may be infinite or NaN. Raise ``ScenarioError`` for other texts."""
    try:
        return parse_float(cell)
    except ValueError:
        return file.refuse(line, f"'{cell[:40]}' is not a number")


def _unpacked_costs(text: str) -> dict[str, Row]:
    costs = {name: Row(*map(float, seconds)) for name, seconds in json.loads(text or "{}").items()}
    if not all(0 <= seconds < LONGEST_S for row in costs.values() for seconds in row):
        raise ValueError("a negative time, or one that is too long")
    return costs


COSTS = table(
    dict[str, Row],
    lambda file: read_costs(file.rows, file.name),
    (lambda costs: json.dumps(costs) if costs else "", _unpacked_costs),
    empty={},
    what="a table of costs of at least 0 s",
    made_by=", as 'testbed calibrate --costs NAME.csv' makes it",
)


PROFILE_HEADER = "segment,forward_us,backward_us"
Layers = tuple[tuple[float, float], ...]
"""Seconds forward and backward, by segment."""


def _layers_of_file(file: TextFile) -> Layers:
    if not file.rows or ",".join(cell.strip() for cell in file.rows[0][1].split(",")) != PROFILE_HEADER:
        file.refuse(None, f"expected the header '{PROFILE_HEADER}'", "'testbed profile' writes such a file")
    layers = tuple(
        (_seconds(file, line, forward), _seconds(file, line, backward))
        for line, (_, forward, backward) in rows_of(file, 3, "segment")
    )
    if not sum(map(sum, layers)):
        file.refuse(None, "no time is above 0", "'testbed profile' writes such a file")
    return layers


def _seconds(file: TextFile, line: int, cell: str) -> float:
    time_us = number_of(file, line, cell)
    if not 0 <= time_us <= _LONGEST_S * 1e6:
        file.refuse(line, f"{cell} is outside [0, {_LONGEST_S * 1e6:g}] us")
    return time_us * 1e-6


def _unpacked_layers(text: str) -> Layers:
    layers = tuple((float(forward), float(backward)) for forward, backward in json.loads(text or "[]"))
    times_s = [time_s for layer in layers for time_s in layer]
    if not all(0 <= time_s <= _LONGEST_S for time_s in times_s) or (times_s and not any(times_s)):
        raise ValueError("a time outside [0 s, 1 h], or none above 0")
    return layers


PROFILE = table(
    Layers,
    _layers_of_file,
    (lambda layers: json.dumps(layers) if layers else "", _unpacked_layers),
    empty=(),
    what="times of layers from 0 s to 1 h",
    made_by=", as 'testbed profile' makes it",
)


_UNITS = {"step_time_s": 1.0, "step_time_ms": 1e-3}
_EXPECTED = "expected the header 'worker,step_time_ms'"


def _times_of_file(file: TextFile) -> dict[str, float]:
    if not file.rows:
        file.refuse(None, "no rows", _EXPECTED)
    line, first = file.rows[0]
    names = [name.strip() for name in first.split(",")]
    if len(names) != 2 or names[0] != "worker" or names[1] not in _UNITS:
        file.refuse(
            line, _EXPECTED, "or 'worker,step_time_s'; a row is DATA_CENTER/workerN, or DATA_CENTER for all of it"
        )
    if not file.rows[1:]:
        file.refuse(line, "has no rows below the header", "write one row per worker or data centre: tokyo/worker0,50")
    times: dict[str, float] = {}
    for line, (worker, cell) in rows_of(file, 2, "worker"):
        if worker in times:
            file.refuse(line, f"'{worker}' is there twice", "keep one of them")
        times[worker] = number_of(file, line, cell) * _UNITS[names[1]]
        if not 0 < times[worker] <= _LONGEST_S:
            file.refuse(line, f"{cell} is outside (0 s, 1 h]")
    return times


def _unpacked_times(text: str) -> dict[str, float]:
    words = text.split()
    times = {name: parse_float(seconds) for name, seconds in zip(words[::2], words[1::2], strict=True)}
    if 2 * len(times) != len(words) or not times or not all(0 < each <= _LONGEST_S for each in times.values()):
        raise ValueError("a name twice, or a time outside (0 s, 1 h]")
    return times


STEP_TIMES = table(
    dict[str, float] | None,
    _times_of_file,
    (lambda times: " ".join(f"{name} {seconds!r}" for name, seconds in times.items()), _unpacked_times),
    empty=None,
    what="names, each once, and seconds in (0, 3600] in turn",
)
