"""The base of all sections, and the mark of values whose type is decided when they are read."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, create_model, model_validator
from pydantic_core import core_schema

from testbed.scenario.reading.quantities import is_null
from testbed.scenario.reading.violations import Violation, raise_found

_written: dict[str, str] = {}  # entries as YAML: the points of a sweep have most in common, and a whole takes 20 ms
_MOST_WRITTEN = 256


class Section(BaseModel):
    """A mapping of the scenario: refuses unknown keys, never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)

    def _violations(self) -> Iterable[Violation]:
        """Return what is wrong with values that are good one by one."""
        return ()

    @model_validator(mode="after")
    def _rules(self) -> Self:
        raise_found(self._violations())
        return self

    def other_than_default(self, *keys: str) -> list[str]:
        """Return those of ``keys`` that have another value than where they are left out."""
        fields = type(self).model_fields
        return [key for key in keys if getattr(self, key) != fields[key].get_default(call_default_factory=True)]

    def resolved(self) -> dict[str, Any]:
        """Return all values with their defaults, quantities with their units, without null and empty values."""
        dumped: dict[str, Any] = _without_empty(self.model_dump(mode="json", by_alias=True, exclude_none=True))
        return dumped

    def to_yaml(self) -> str:
        """Return the section as YAML, with defaults and the points of trace files; it loads to an equal one."""
        return as_yaml(self.resolved())


def as_yaml(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return _as_yaml(value)
    parts = {repr(entry): entry for entry in ({key: each} for key, each in value.items())}
    if len(_written) > _MOST_WRITTEN:
        _written.clear()
    for text, entry in parts.items():
        if text not in _written:
            _written[text] = _as_yaml(entry)
    return "".join(_written[text] for text in parts)


def _as_yaml(value: Any) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(entry) for key, entry in value.items() if entry not in ([], {})}
    return [_without_empty(entry) for entry in value] if isinstance(value, list) else value


class Made(Section):
    """The base of sections that are made from others."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # looking for the source of a made class takes a second


def changes_of(section: type[BaseModel], name: str, about: str, *keys: str, base: Any = Made) -> Any:
    """Return a section with these ``keys`` (or all) of ``section``, each ``None`` where it is left out."""
    fields: dict[str, Any] = {}
    for key in keys or section.model_fields:
        info = section.model_fields[key]
        hint: Any = info.annotation | None  # type: ignore[operator]
        hint = Annotated[hint, *info.metadata] if info.metadata else hint
        fields[key] = (hint, Field(default=None, description=f"As in {section.__name__}."))
    return create_model(name, __base__=base, __doc__=about, **fields)


def _null_to_none(value: Any) -> Any:
    return None if is_null(value) else value


NULLABLE = BeforeValidator(_null_to_none)
"""For a section that may be ``null``."""


@dataclasses.dataclass(frozen=True, eq=False)
class ReadAs:
    """In ``Annotated[Technique, ReadAs(kind)]``: the type ``kind`` is read, whatever the annotation says to mypy.

    ``open`` holds models of kinds that became known while scenarios were read, by their mark in an error's place.
    """

    kind: Any
    open: Mapping[str, type[BaseModel]] = dataclasses.field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler.generate_schema(self.kind)
        if NoneType not in get_args(source):
            return schema
        before = core_schema.nullable_schema(schema)
        return core_schema.no_info_before_validator_function(_null_to_none, before)
