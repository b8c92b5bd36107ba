"""Makes a pydantic model for a declared dataclass.

The model reads a mapping with the keys of the fields, collects every mistake in the values, writes instances, and makes
the JSON Schema.
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

    key      returns the key of a field
    type_of  returns the type that pydantic reads, from a field's annotation and the facts of its declaration
    others   fields to put before those of the dataclass
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
    """Return a function that adds the field's description to its JSON Schema, and the empty default of a section."""

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
    """Return a type for pydantic that uses ``model`` to read and write instances of the dataclass ``made``.

    A list is the short form of a mapping whose only key is ``made.short``. If the field holds something other than an
    instance of ``made``, the instance's ``value()`` converts it to the field's value, and ``made.of`` converts back.
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
    """Return the instance of a dataclass as a dictionary, as its model writes it."""
    made = model.model_construct(**{name: getattr(value, name) for name in model.model_fields})
    return made.model_dump(mode=mode, by_alias=True, exclude_none=True)
