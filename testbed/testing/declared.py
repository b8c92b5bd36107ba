"""Requirements for the declarations of every technique: options, and class attributes of the right type."""

from __future__ import annotations

import dataclasses
from typing import Any

from testbed.axes import options_of, refuse_values
from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject


def _options(subject: Subject) -> tuple[Any, ...]:
    """Return the options dataclass of the technique; empty if it inherits that of its base class."""
    options = options_of(subject.entry)
    return () if options is options_of(subject.axis.base_class()) else (options,)


@requirement("write @dataclass(frozen=True, slots=True) above class Options, and give every option a default")
def the_options_are_a_frozen_dataclass_with_defaults(subject: Subject) -> None:
    """Options are a frozen dataclass in which every option has a default, and equal values give equal options."""
    for options in _options(subject):
        require(options.__dataclass_params__.frozen, f"{options.__qualname__} can be changed")
        for field in dataclasses.fields(options):
            missing = field.default is field.default_factory is dataclasses.MISSING
            require(not missing, f"{field.name} has no default")
        require(
            subject.options == subject.options, "equal values give options that differ", "keep the generated __eq__"
        )


@requirement('write field(default=…, metadata={"help": "…"})')
def every_option_says_what_it_is(subject: Subject) -> None:
    """Every option has a help text, and a default within its limits."""
    for options in _options(subject):
        for field in dataclasses.fields(options):
            require(field.metadata.get("help"), f"option '{field.name}' has no help text")
        try:
            refuse_values(options())
        except ValueError as error:
            raise Broken(str(error), "change the default, or the limits") from None


@requirement("set it as a class attribute of that type")
def declarations_have_the_types_of_the_base_class(subject: Subject) -> None:
    """Each class attribute has the type of the attribute with the same name in the axis' base class."""
    base = subject.axis.base_class()
    for name in {name: None for each in reversed(base.__mro__) for name in vars(each) if not name.startswith("_")}:
        default = getattr(base, name)
        if isinstance(default, bool | int | float | str | tuple):
            value = getattr(subject.entry, name, default)
            require(type(value) is type(default), f"{name} is {value!r}, not of type {type(default).__name__}")
