"""Tables from CSV files beside the scenario. Each becomes one value, as a scenario may have few values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import is_null, refuse
from testbed.scenario.reading.section import ReadAs
from testbed.units import parse_float
from topologies.traces.model import TextFile

_SCHEMA = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}


def table(
    kind: Any,
    of_file: Callable[[TextFile], Any],
    text: tuple[Callable[[Any], str], Callable[[str], Any]],
    *,
    empty: Any,
    what: str,
    made_by: str = "",
) -> Any:
    """Return a field for ``{file: NAME.csv}``.

    kind     type of the table
    of_file  reads the file; raises ``ScenarioError``
    text     turns a table into one text, and the text into the table again; the second raises ``ValueError``
    empty    the table where none is given
    what     the text holds, and ``made_by`` how the file is made, for messages
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
    return Annotated[kind, ReadAs(Annotated[kind, BeforeValidator(read)]), write_text, WithJsonSchema(_SCHEMA)]


def _is_written(value: Any) -> bool:
    """Return whether a value is from a scenario's text, not a table that was read before."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return isinstance(value, Scalar) or any(map(_is_written, parts))


def rows_of(file: TextFile, columns: int, what: str) -> list[tuple[int, list[str]]]:
    """Return line number and cells of every row below the header; ``what`` a row is, for the refusal of others."""
    rows = [(line, [cell.strip() for cell in text.split(",")]) for line, text in file.rows[1:]]
    for line, cells in rows:
        if len(cells) != columns:
            file.refuse(line, f"has {len(cells)} cells, the header {columns}", f"one {what} a line")
    return rows


def number_of(file: TextFile, line: int, cell: str) -> float:
    """Return a cell as a number, which may be infinite or none. Raise ``ScenarioError`` for other texts."""
    try:
        return parse_float(cell)
    except ValueError:
        return file.refuse(line, f"'{cell[:40]}' is not a number")
