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
    """Return a field with facts about the values that a scenario may write. The default may be the type ``dict``.

    The text below a field describes it; options of techniques have this text as ``help``. The facts are:

    ``min``, ``max``, ``above`` (exclusive)  bounds, in SI units
    ``choices``  the allowed words or numbers
    ``unit``     the unit of a quantity: ``bit/s``, ``s``, ``bytes`` or ``share``
    ``example``  an example of a quantity, if the usual one of its unit does not fit
    ``words``    words that stand for numbers: ``{"auto": -1}``
    ``form``     the name of a reader in ``testbed.scenario.reading.forms``, or a reader, for values of other forms
    ``axis``     the axis of a technique. ``tiers``: whether each tier may have a technique of its own
    ``kinds``    the table of a kind without options
    ``section``  the declared dataclass that reads the value, if the field holds something else: its ``value()`` returns
                 the field's value, and its ``of`` is the inverse
    ``path``     what the path in a text leads to: ``file``, ``folder`` or ``script``
    ``key``      the key in the scenario; by default the name of the field without the suffix of its unit
    ``absent``   the value that a scenario writes as ``null``
    ``described_in``  the declared dataclass with the text that describes the field, if it is another one
    ``sample``   a value that replaces a refused one, so that rules about other values can still be checked
    ``cure``     the cure for values above ``max``
    ``or_zero``  whether 0 is allowed although it is below ``min``

    Facts about the items of a list or dictionary are in the annotation: ``Annotated[str, item(form="name")]``.
    """
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata={"help": help, **facts})
    return dataclasses.field(default=default, metadata={"help": help, **facts})


def required(**facts: Any) -> Any:
    """Return a field like ``option``, but without a default."""
    return option(dataclasses.MISSING, **facts)


def item(**facts: Any) -> Mapping[str, Any]:
    """Return the facts of an item of a list or dictionary, as ``option`` takes them."""
    return MappingProxyType(facts)


def derived(default: Any) -> Any:
    """Return a field of the Plan that follows from other settings, so that scenarios cannot write it."""
    return dataclasses.field(default=default, metadata={"derived": True})


def written(declared: Any) -> Iterator[dataclasses.Field[Any]]:
    """Yield the fields of a declared dataclass that a scenario may write."""
    return (field for field in dataclasses.fields(declared) if "derived" not in field.metadata)


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field in a scenario: without the unit suffix, as the value has its unit."""
    key: str = field.metadata.get("key") or field.name.removesuffix(_SUFFIXES.get(field.metadata.get("unit", ""), ""))
    return key


def limits_of(hint: Any, facts: Mapping[str, Any]) -> tuple[Any, Any, bool]:
    """Return the lower and upper bound of a number, and whether it must be above the lower bound."""
    highest = 10**12 if hint is int else 1e12
    return facts.get("above", facts.get("min", 0)), facts.get("max", highest), "above" in facts


@cache
def texts_of(declared: Any) -> dict[str, str]:
    """Return the texts below the fields of a declared dataclass and of its bases, by the name of the field."""
    found: dict[str, str] = {}
    classes: list[type] = list(declared.__mro__)
    for cls in reversed(classes):
        is_written = getattr(sys.modules[cls.__module__], cls.__name__, None) is cls  # not made by ``changes_of``
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
