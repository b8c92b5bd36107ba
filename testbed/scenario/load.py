"""YAML to a ``Scenario``, or to all that is wrong with it, each with file, line and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from testbed.errors import ScenarioError
from testbed.scenario import overrides as override_language
from testbed.scenario.reading.document import MAX_BYTES, Mapping, Node, Where, parse, plain
from testbed.scenario.reading.keys import keys_at, keys_of
from testbed.scenario.reading.problems import Problem, lines_of, place, problems_of
from testbed.scenario.reading.quantities import UNKNOWN
from testbed.scenario.schema import Scenario


def load(path: str | Path, overrides: Sequence[str] = (), *, sweeping: bool = False) -> Scenario:
    """Read a scenario file. ``overrides`` are ``path=value`` texts. Raises ``ScenarioError`` with every problem.

    ``sweeping``: a ``sweep`` section is somebody else's to read (``testbed.scenario.sweep``); otherwise it is refused.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
            size = path.stat().st_size
    except OSError as error:
        raise ScenarioError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise ScenarioError(f"{str(path)!r}: {error}") from error
    if size > MAX_BYTES:
        raise ScenarioError(f"{path}: file is {size} bytes, limit is {MAX_BYTES}")
    return _read(text, str(path), overrides, path.parent, sweeping)


def loads(
    text: str | bytes, name: str = "scenario.yaml", overrides: Sequence[str] = (), folder: Path | None = None
) -> Scenario:
    """As ``load``, from text; ``name`` stands in messages, files are looked up in ``folder``."""
    return _read(text, name, overrides, folder)


def _read(
    text: str | bytes, name: str, overrides: Sequence[str], folder: Path | None, sweeping: bool = False
) -> Scenario:
    root = parse(text, name)
    if isinstance(root, Mapping) and (sweeping or "sweep" in root.keys):
        _take_sweep(root, sweeping)
    mistakes = override_language.apply(root, overrides, _sections())
    context = {"folder": folder}
    try:
        scenario = Scenario.model_validate(plain(root), context=context)
    except ValidationError as error:
        problems = problems_of(error, root, Scenario) + _behind(error, root, context)
        raise ScenarioError(mistakes + lines_of(problems)) from None
    if mistakes:
        raise ScenarioError(mistakes)
    scenario._places = _Places(root)
    return scenario


def _take_sweep(root: Mapping, sweeping: bool) -> None:
    where = root.keys.pop("sweep", None)
    root.entries.pop("sweep", None)
    if where and not sweeping:
        raise ScenarioError(f"{where}: sweep: these are many runs; start them with `testbed sweep`")


def _behind(error: ValidationError, root: Node, context: dict[str, Any]) -> list[Problem]:
    """What other mistakes hide: rules over a section run only when every value in it is good.

    So they are looked at again without the unknown keys, and with samples for what was refused or is missing.
    """
    data = plain(root)
    for detail in error.errors(include_url=False):
        if detail["loc"]:
            _replace(data, detail["loc"], remove=detail["type"] == "extra_forbidden")
    try:
        Scenario.model_validate(data, context=context)
    except ValidationError as second:
        return problems_of(second, root, Scenario, only="rules")
    return []


def _replace(data: Any, path: tuple[Any, ...], remove: bool) -> None:
    for element in path[:-1]:
        if (isinstance(data, dict) and element in data) or (isinstance(data, list) and isinstance(element, int)):
            data = data[element]  # else a mark of a kind, or a short form
    if remove and isinstance(data, dict):
        data.pop(path[-1], None)
    elif isinstance(data, dict) or (isinstance(data, list) and path[-1] in range(len(data))):
        data[path[-1]] = UNKNOWN


def _sections() -> dict[str, tuple[str, ...]]:
    """The keys of each section, for paths that leave the section out."""
    return {key: keys_at(Scenario, (key,)) for key in keys_of(Scenario)}


class _Places:
    """Finds where a value was written. Two scenarios are equal wherever they were written."""

    def __init__(self, root: Node) -> None:
        self._root = root

    def __call__(self, path: tuple[str | int, ...]) -> Where:
        return place(self._root, path)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Places)

    __hash__ = None  # type: ignore[assignment]


def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario, for completion and hover texts in an editor."""
    schema: dict[str, Any] = Scenario.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def resolved(scenario: BaseModel) -> dict[str, Any]:
    """The scenario with every default, quantities with their units; what is null or empty is left out."""
    dumped: dict[str, Any] = _without_empty(scenario.model_dump(mode="json", by_alias=True, exclude_none=True))
    return dumped


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(entry) for key, entry in value.items() if entry not in ([], {})}
    return [_without_empty(entry) for entry in value] if isinstance(value, list) else value
