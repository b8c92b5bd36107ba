"""The base class of models that read sections, the mark ``ReadAs`` for types with a reader of their own, and YAML."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import core_schema

from testbed.scenario.reading.quantities import is_null

_written: dict[str, str] = {}  # entries as YAML: points of a sweep share most entries, and writing all takes 20 ms
_MOST_WRITTEN = 256


class Made(BaseModel):
    """The base class of the models of sections: reads a mapping and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


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


def without_empty(value: Any) -> Any:
    """Return a tree without keys whose value is ``None``, an empty list or an empty mapping."""
    if isinstance(value, dict):
        return {key: without_empty(entry) for key, entry in value.items() if entry not in (None, [], {})}
    return [without_empty(entry) for entry in value] if isinstance(value, list) else value


def _null_to_none(value: Any) -> Any:
    return None if is_null(value) else value


NULLABLE = BeforeValidator(_null_to_none)
"""For a list or mapping that may be ``null``."""


@dataclasses.dataclass(frozen=True, eq=False)
class ReadAs:
    """In ``Annotated[Technique, ReadAs(kind)]``, pydantic reads the type ``kind``; mypy sees ``Technique``.

    ``models`` holds the models of the kinds that scenarios have named so far, by the tag that pydantic's errors use.
    """

    kind: Any
    models: Mapping[str, type[BaseModel]] = dataclasses.field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler.generate_schema(self.kind)
        if NoneType not in get_args(source):
            return schema
        before = core_schema.nullable_schema(schema)
        return core_schema.no_info_before_validator_function(_null_to_none, before)
