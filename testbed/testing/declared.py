"""Checks of what every technique declares, whatever its axis: options, and class attributes of the right type."""

from __future__ import annotations

import dataclasses
from typing import Any

from testbed.axes import options_of, refuse_values
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require


def the_options_are_a_frozen_dataclass_with_defaults(subject: Subject) -> None:
    options = options_of(subject.entry)
    require(
        options.__dataclass_params__.frozen, "a frozen dataclass", f"{options.__qualname__} can be changed",
        "write @dataclass(frozen=True, slots=True) above class Options",
    )  # fmt: skip
    without = [
        field.name for field in dataclasses.fields(options)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    require(not without, "a default for every option", f"{', '.join(without)} has none", "give it a default")
    first, second = subject.options, subject.options
    require(first == second, "equal options from equal values", f"{first} and {second}", "keep the generated __eq__")


def every_option_says_what_it_is(subject: Subject) -> None:
    for field in dataclasses.fields(options_of(subject.entry)):
        require(
            field.metadata.get("help"), f"a help text for option '{field.name}'", "none",
            f'write field(default=…, metadata={{"help": "…"}}) for {field.name}',
        )  # fmt: skip
    try:
        refuse_values(options_of(subject.entry)())
    except ValueError as error:
        raise CheckFailed("defaults within their limits", str(error), "change the default, or the limits") from None


def declarations_have_the_types_of_the_base_class(subject: Subject) -> None:
    """Compare each class attribute with the one of the same name in the axis' base class."""
    for name, default in _declarations(subject.axis.base_class()):
        value = getattr(subject.entry, name, default)
        if type(value) is not type(default):
            raise CheckFailed(
                f"{name} of type {type(default).__name__}, such as {default!r}", f"{value!r}",
                f"set {name} as a class attribute of that type",
            )  # fmt: skip


def _declarations(base: type[Any]) -> list[tuple[str, Any]]:
    plain = (bool, int, float, str, tuple)
    found = {name: getattr(base, name) for each in reversed(base.__mro__) for name in vars(each)}
    return [(name, value) for name, value in found.items() if not name.startswith("_") and isinstance(value, plain)]
