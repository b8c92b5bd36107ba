"""How a setting is declared: once, as a field of a frozen dataclass, with its unit, bounds, default and description.

A section of a scenario, the options of a technique and the parts of a Plan are such dataclasses:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Recovery:
        restart_delay_s: float = option(1.0, unit="s", key="delay")
        "Time from the loss to the restart."

From the declaration follow the values that a scenario may write (``testbed.scenario.reading.declared``), the messages
about wrong values, the JSON Schema, the reference, and the content of the Plan. A dataclass may have a method
``problems()``, which checks combinations of values and yields place, problem and cure:

    yield "until", "3 s does not come after 5 s", "write a later time"

This module is free of YAML and pydantic, so that a node's process, which reads a Plan, imports neither.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")
Problem = tuple[str | tuple[str | int, ...], str, str]
"""The place below the section, the problem, and the cure."""
_SUFFIXES = {"s": "_s", "bit/s": "_bps", "bytes": "_bytes"}


def option(default: Any, help: str = "", **facts: Any) -> Any:  # noqa: A002 - as in argparse
    """Return a field, and what a scenario may write for it. The default may be the type ``dict``.

    The text below a field says what it means. Options of techniques have that text as ``help``.

    ``min``, ``max``, ``above`` (exclusive)  bounds, in SI units
    ``choices``  the words, or numbers, that there are
    ``unit``     of a quantity: ``bit/s``, ``s``, ``bytes`` or ``share``
    ``example``  of a quantity, if the usual one of its unit does not fit
    ``words``    values that have a name: ``{"auto": -1}``
    ``form``     of a text that is no plain one (``testbed.scenario.reading.forms``), or what reads the value
    ``axis``     of a technique; ``tiers``: whether there may be one for each tier. ``kinds``: table of a kind alone
    ``section``  declared dataclass that a scenario writes, where the annotation is another: its ``value()`` is what the
                 field holds, and ``of`` the inverse
    ``path``     what a text is the path of: ``file``, ``folder`` or ``script``
    ``key``      in the scenario; by default the name of the field, without the unit that it ends with
    ``absent``   the value that stands for nothing, which a scenario writes as ``null``
    ``described_in``  declared dataclass that has the text below the field, where it is another
    ``sample``   stands in for a value that was refused, while rules over other values are looked at
    ``cure``     for what is above ``max``; ``or_zero``: 0 is a value too, though below ``min``

    Facts of the items of a list or dictionary are in their annotation: ``Annotated[str, item(form="name")]``.
    """
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata={"help": help, **facts})
    return dataclasses.field(default=default, metadata={"help": help, **facts})


def required(**facts: Any) -> Any:
    """Return a field as ``option`` does, which has no default."""
    return option(dataclasses.MISSING, **facts)


def item(**facts: Any) -> Mapping[str, Any]:
    """Return the facts of an item of a list or dictionary, as ``option`` takes them."""
    return MappingProxyType(facts)


def derived(default: Any) -> Any:
    """Return a field of the Plan that follows from other settings: no scenario writes it."""
    return dataclasses.field(default=default, metadata={"derived": True})


def written(declared: Any) -> Iterator[dataclasses.Field[Any]]:
    """Yield the fields of a declared dataclass that a scenario may write."""
    return (field for field in dataclasses.fields(declared) if "derived" not in field.metadata)


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field in a scenario: without the unit suffix, as the value has its unit."""
    key: str = field.metadata.get("key") or field.name.removesuffix(_SUFFIXES.get(field.metadata.get("unit", ""), ""))
    return key


def limits_of(hint: Any, facts: Mapping[str, Any]) -> tuple[Any, Any, bool]:
    """Return the smallest and the largest value of a number's field, and whether it has to be above the smallest."""
    highest = 10**12 if hint is int else 1e12
    return facts.get("above", facts.get("min", 0)), facts.get("max", highest), "above" in facts


@cache
def texts_of(declared: Any) -> dict[str, str]:
    """Return the texts that describe the fields of a declared dataclass and of its bases: those below the fields."""
    found: dict[str, str] = {}
    classes: list[type] = list(declared.__mro__)
    for cls in reversed(classes):
        is_written = getattr(sys.modules[cls.__module__], cls.__name__, None) is cls  # and not made of another one
        if not is_written or not dataclasses.is_dataclass(cls):
            continue
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = inspect.cleandoc(str(text.value.value))
    return found


def other_than_default(section: Any, *names: str) -> list[str]:
    """Return the keys of those fields among ``names`` whose values differ from their defaults."""
    by_name = {field.name: field for field in dataclasses.fields(section)}
    return [key_of(by_name[name]) for name in names if getattr(section, name) != default_of(by_name[name])]


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the value of a field that is left out; ``dataclasses.MISSING`` if it is required."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def made_from(made: type[T], section: Any, **others: Any) -> T:
    """Return a part of the Plan with the fields that ``section`` has by the same names, and ``others``."""
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    same = {field.name: getattr(section, field.name) for field in fields if hasattr(section, field.name)}
    return made(**(same | others))
