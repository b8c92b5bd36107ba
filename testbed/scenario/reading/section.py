"""The base of all sections, and the mark of values whose type is decided when they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import core_schema

from testbed.scenario.reading.quantities import is_null


class Section(BaseModel):
    """A mapping of the scenario: refuses unknown keys, never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


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
