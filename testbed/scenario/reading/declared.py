"""Turns the declarations of settings (``testbed.declaration``) into pydantic models that read a scenario.

For each declared dataclass there is a model with the same fields, by their keys. It reads a mapping, collects all
mistakes, and makes the JSON Schema. The values become an instance of the dataclass, and its ``problems()`` is called.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter

from testbed.declaration import key_of, option, written
from testbed.scenario.reading.axes import kind_of, of_axis
from testbed.scenario.reading.leaves import leaf
from testbed.scenario.reading.models import KeyOf, dumped, made_model, reading
from testbed.scenario.reading.section import NULLABLE, ReadAs, as_yaml, without_empty

T = TypeVar("T")


def type_of(hint: Any, facts: Mapping[str, Any]) -> Any:
    """Return what pydantic reads for a field with this annotation and these facts."""
    inner = _without_none(hint)
    if get_origin(inner) is Annotated:
        inner, facts = get_args(inner)
    reader = _reader(inner, facts)
    if reader is not None:
        return Annotated[hint, reader]
    arguments = get_args(inner)
    if get_origin(inner) is dict:
        container: Any = dict[str, type_of(arguments[1], {})]  # type: ignore[misc]
    else:
        items = tuple(each if each is ... else type_of(each, {}) for each in arguments)
        container = tuple.__class_getitem__(items)
    return container if inner is hint else Annotated[container | None, NULLABLE]


def _without_none(hint: Any) -> Any:
    """Return ``X`` of ``X | None``."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    members = [member for member in get_args(hint) if member is not types.NoneType] if is_union else []
    return members[0] if len(members) == 1 else hint


def _reader(hint: Any, facts: Mapping[str, Any]) -> Any:
    """Return the reader of values of this type; ``None`` for lists and dictionaries of other types."""
    for fact, reader in _READERS.items():
        if fact in facts:
            return reader(facts)
    if "form" in facts:
        return leaf(hint, facts)
    declared: Any = hint
    if dataclasses.is_dataclass(hint):
        return section(declared)
    return None if get_origin(hint) in (tuple, dict) else leaf(hint, facts)


@cache
def section(declared: Any) -> ReadAs:
    """Return the reader that turns a mapping with the keys of a declared dataclass into an instance of it."""
    return ReadAs(reading(model_of(declared), declared))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "axis": lambda facts: of_axis(facts["axis"], tiers=facts.get("tiers", False)),
    "kinds": lambda facts: kind_of(facts["kinds"]),
    "section": lambda facts: section(facts["section"]),
}


def read(declared: Callable[..., T], tree: Any, context: dict[str, Any] | None = None) -> T:
    """Return an instance made from a document's tree. Raise pydantic's ``ValidationError`` with every mistake."""
    found: T = _adapter(declared).validate_python(tree, context=context)
    return found


@cache
def _adapter(declared: Any) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[Any, section(declared)])


def resolved(section: Any, key: KeyOf = key_of) -> dict[str, Any]:
    """Return a section's values with their defaults, quantities with their units, without null and empty values."""
    found: dict[str, Any] = without_empty(dumped(model_of(section.__class__, key), section, "json"))
    return found


def to_yaml(section: Any) -> str:
    """Return a section as YAML, with defaults and the points of trace files; it loads to an equal one."""
    return as_yaml(resolved(section))


@cache
def model_of(declared: Any, key: KeyOf = key_of) -> type[BaseModel]:
    """Return the model that reads a mapping with the keys of a declared dataclass."""
    return made_model(declared.__name__, declared, key, type_of)


def changes_of(declared: type[Any], name: str, about: str, *names: str, bases: tuple[type[Any], ...] = ()) -> Any:
    """Return a declared dataclass with the fields ``names`` (or all) of another, each ``None`` where it is left out."""
    hints = get_type_hints(declared, include_extras=True)
    facts: dict[str, Any] = {"described_in": declared}
    fields = [
        (each.name, hints[each.name] | None, option(None, **facts | each.metadata))
        for each in written(declared)
        if not names or each.name in names
    ]
    made = dataclasses.make_dataclass(name, fields, bases=bases, frozen=True, kw_only=True)
    made.__doc__ = about
    return made
