"""Finds the keys that are allowed at a place of the scenario, from the types of the schema."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Tag

from testbed.scenario.reading.section import ReadAs

Path = tuple[str | int, ...]


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items())


def keys_at(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    """Return the keys that are allowed in the section at ``path`` below ``model``; empty if there is no section."""
    kind: Any = model
    for element in path:
        kind = _step(kind, element)
    kind = _unwrap(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return keys_of(kind)
    ways = {Tag("<use>"), Tag("<written>"), Tag("<file>")}  # alternative forms of the same section
    forms = [keys_at(member, ()) for member in get_args(kind) if any(way in _metadata(member) for way in ways)]
    return tuple(dict.fromkeys(key for form in forms for key in form))


def _step(outer: Any, element: str | int) -> Any:
    read_as = _read_as(outer)
    kind = _unwrap(outer)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if element == (info.alias or name):
                return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        return NoneType
    if get_origin(kind) is tuple:
        return get_args(kind)[0]
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    if read_as is not None and element in read_as.models:
        return read_as.models[str(element)]
    return next((member for member in get_args(kind) if Tag(str(element)) in _metadata(member)), kind)


def _read_as(kind: Any) -> ReadAs | None:
    return next((entry for entry in _metadata(kind) if isinstance(entry, ReadAs)), None)


def _unwrap(kind: Any) -> Any:
    """Return ``kind`` without ``Annotated`` and ``None``, and with ``ReadAs`` replaced by the type that it reads."""
    read_as = _read_as(kind)
    if read_as is not None:
        return _unwrap(read_as.kind)
    if get_origin(kind) is Annotated:
        return _unwrap(get_args(kind)[0])
    members = [member for member in get_args(kind) if member is not NoneType]
    if NoneType in get_args(kind) and len(members) == 1:
        return _unwrap(members[0])
    return kind


def _metadata(kind: Any) -> tuple[Any, ...]:
    return get_args(kind)[1:] if get_origin(kind) is Annotated else ()
