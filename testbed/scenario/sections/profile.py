"""What a model's layers take on a device, from a CSV file beside the scenario, as ``testbed profile`` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import is_null, refuse
from testbed.scenario.reading.section import ReadAs
from testbed.units import parse_float
from topologies.traces.model import TextFile

HEADER = "segment,forward_us,backward_us"
_LONGEST_US = 3600e6
Layers = tuple[tuple[float, float], ...]


def _read(value: Any, info: ValidationInfo) -> Any:
    """Read ``{file: NAME.csv}``, or what ``_pack`` has written: seconds forward and backward, by segment."""
    if is_null(value) or value is None:
        return ()
    if isinstance(value, Scalar):
        return _unpacked(value.text)
    if isinstance(value, Mapping) and isinstance(value.get("file"), Scalar) and len(value) == 1:
        try:
            return _of_file(TextFile.read(beside(value["file"].text, info)))
        except ScenarioError as error:
            raise refuse(str(error)) from error
    if isinstance(value, tuple | list):
        return tuple(tuple(pair) for pair in value)
    raise refuse("expected a file", "write {file: NAME.csv}, as 'testbed profile' makes it")


def _of_file(file: TextFile) -> Layers:
    if not file.rows or ",".join(cell.strip() for cell in file.rows[0][1].split(",")) != HEADER:
        file.refuse(None, f"expected the header '{HEADER}'", "'testbed profile' writes such a file")
    layers = []
    for line, text in file.rows[1:]:
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != 3:
            file.refuse(line, f"has {len(cells)} cells, the header 3", "one segment a line")
        layers.append((_seconds(file, line, cells[1]), _seconds(file, line, cells[2])))
    if not sum(map(sum, layers)):
        file.refuse(None, "no time is above 0", "'testbed profile' writes such a file")
    return tuple(layers)


def _seconds(file: TextFile, line: int, cell: str) -> float:
    try:
        time_us = parse_float(cell)
    except ValueError:
        file.refuse(line, f"'{cell[:40]}' is not a number")
    if not 0 <= time_us <= _LONGEST_US:
        file.refuse(line, f"{cell} is outside [0, {_LONGEST_US:g}] us")
    return time_us * 1e-6


def _pack(layers: Layers) -> str:
    """Return one value: a scenario may have a limited number of them."""
    return json.dumps(layers) if layers else ""


def _unpacked(text: str) -> Layers:
    try:
        return tuple((float(forward), float(backward)) for forward, backward in json.loads(text or "[]"))
    except (ValueError, TypeError):
        raise refuse("expected times of layers", "write {file: NAME.csv}") from None


PROFILE: Any = Annotated[
    Layers,
    ReadAs(Annotated[Layers, BeforeValidator(_read)]),
    PlainSerializer(_pack, when_used="json"),
    WithJsonSchema({"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}),
]
