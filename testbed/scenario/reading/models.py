"""A pydantic model beside a declared dataclass: it reads a mapping by the keys of the fields, and writes instances.

It collects every mistake of the values, and makes the JSON Schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, Field, PlainSerializer, WrapValidator, create_model

from testbed.declaration import default_of, texts_of, written
from testbed.scenario.reading.section import Made
from testbed.scenario.reading.violations import checked
from testbed.settings.job import Choice

KeyOf = Callable[[dataclasses.Field[Any]], str]
TypeOf = Callable[[Any, Mapping[str, Any]], Any]
FIELD: Callable[..., Any] = Field


def made_model(name: str, declared: type[Any], key: KeyOf, type_of: TypeOf, **others: Any) -> type[BaseModel]:
    """Return a model for a declared dataclass.

    key      of each field
    type_of  what pydantic reads for an annotation and the facts of its declaration
    others   fields before those of the dataclass
    """
    hints = get_type_hints(declared, include_extras=True)
    fields = dict(others)
    for each in written(declared):
        facts = {"alias": key(each)} if key(each) != each.name else {}
        about = FIELD(**facts, **_default(each), json_schema_extra=_describing(declared, each))
        fields[each.name] = (type_of(hints[each.name], each.metadata), about)
    documentation = (declared.__doc__ or "").strip()
    model: type[BaseModel] = create_model(name, __base__=Made, __doc__=documentation, **fields)
    return model


def _describing(declared: Any, field: dataclasses.Field[Any]) -> Callable[[dict[str, Any]], None]:
    """Return what adds to the JSON Schema of a field what it means, and that a section may be left empty."""

    def describe(schema: dict[str, Any]) -> None:
        described_in = field.metadata.get("described_in", declared)
        schema["description"] = field.metadata.get("help") or texts_of(described_in)[field.name]
        if _is_section(default_of(field)):
            schema["default"] = {}

    return describe


def _is_section(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, Choice)


def _default(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """Return the default as a scenario would write it, for pydantic's ``Field``."""
    value = default_of(field)
    if value is dataclasses.MISSING:
        return {}
    if _is_section(value):
        return {"default_factory": lambda: value}
    if isinstance(value, dict):
        return {"default_factory": dict}
    if "absent" in field.metadata and value == field.metadata["absent"]:
        return {"default": None}
    return {"default": value.kind if isinstance(value, Choice) else value}


def reading(model: type[BaseModel], made: Any) -> Any:
    """Return a type that ``model`` reads, which becomes an instance of the dataclass ``made``; and which writes these.

    A list is the short form of a mapping whose only key is ``made.short``. Where a field holds something else than what
    a scenario writes, ``value()`` makes it of the instance, and ``made.of`` is the inverse.
    """
    short = getattr(made, "short", "")
    written_of = getattr(made, "of", lambda value: value)

    def read(value: Any, handler: Callable[[Any], BaseModel]) -> Any:
        if isinstance(value, made):
            return value
        if short and isinstance(value, tuple | list):
            value = {short: value}
        found = checked(made(**dict(handler(value))))
        return found.value() if hasattr(made, "of") else found

    write = PlainSerializer(lambda value, info: dumped(model, written_of(value), info.mode))
    return Annotated[model, WrapValidator(read), write]


def dumped(model: type[BaseModel], value: Any, mode: str) -> dict[str, Any]:
    """Return the instance of a dataclass as its model would be written."""
    made = model.model_construct(**{name: getattr(value, name) for name in model.model_fields})
    return made.model_dump(mode=mode, by_alias=True, exclude_none=True)
