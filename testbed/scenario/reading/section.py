"""The base of all sections, and the mark of values whose type is decided when they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, create_model, model_validator
from pydantic_core import core_schema

from testbed.scenario.reading.quantities import is_null
from testbed.scenario.reading.violations import Violation, raise_found


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
