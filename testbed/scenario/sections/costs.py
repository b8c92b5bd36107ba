"""A table of measured costs, from a CSV file beside the scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from testbed.costs import Row, read_costs
from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import is_null, refuse
from testbed.scenario.reading.section import ReadAs
from topologies.traces.model import TextFile


def _read(value: Any, info: ValidationInfo) -> Any:
    """Read ``{file: NAME.csv}``, or what ``_pack`` has written."""
    if is_null(value) or value is None:
        return {}
    if isinstance(value, Scalar):
        return _unpacked(value.text)
    if isinstance(value, Mapping) and isinstance(value.get("file"), Scalar) and len(value) == 1:
        try:
            file = TextFile.read(beside(value["file"].text, info))
            return read_costs(file.rows, file.name)
        except ScenarioError as error:
            raise refuse(str(error)) from error
    if isinstance(value, Mapping) and all(isinstance(row, tuple) for row in value.values()):
        return dict(value)
    raise refuse("expected a file", "write {file: NAME.csv}, as 'testbed calibrate --costs NAME.csv' makes it")


def _pack(costs: Mapping[str, Row]) -> str:
    """Return one value: a scenario may have a limited number of them."""
    return json.dumps(costs) if costs else ""


def _unpacked(text: str) -> dict[str, Row]:
    try:
        return {name: Row(*seconds) for name, seconds in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        raise refuse("expected a table of costs", "write {file: NAME.csv}") from None


COSTS: Any = Annotated[
    dict[str, Row],
    ReadAs(Annotated[dict[str, Row], BeforeValidator(_read)]),
    PlainSerializer(_pack, when_used="json"),
    WithJsonSchema({"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}),
]
