"""The leaves of the schema: the types of single values, their bounds, and the messages for values that do not fit.

A leaf receives a ``Scalar`` (the text of a file) or, from Python, a value of the type itself. It refuses a value with
``refuse(problem, hint)``; ``problems.py`` adds the place and the path. A leaf on a type with ``None`` also takes null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from testbed import units
from testbed.ids import NAME_PATTERN, name_cure
from testbed.scenario.reading.document import Scalar
from testbed.suggest import suggestion

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")


UNKNOWN = object()  # stands for a value that was refused or is missing


@dataclass(frozen=True)
class FieldType:
    """Reads one value and writes it again. Used in annotations: ``Annotated[float, leaf]``."""

    read: Callable[[Any], Any]
    json_schema: dict[str, Any] = field(default_factory=dict)
    write: Callable[[Any], Any] | None = None
    sample: Any = None  # replaces ``UNKNOWN``, so that rules about other values can still be checked

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        may_be_none = NoneType in get_args(source)

        def read(value: Any) -> Any:
            if value is UNKNOWN and self.sample is not None:
                return self.sample
            return None if may_be_none and is_null(value) else self.read(value)

        writer = self.write and core_schema.plain_serializer_function_ser_schema(
            self.write, when_used="json-unless-none"
        )
        return core_schema.no_info_plain_validator_function(read, serialization=writer)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return dict(self.json_schema)


def is_null(value: Any) -> bool:
    return value is None or (isinstance(value, Scalar) and value.is_null)


def refuse(problem: str, hint: str = "") -> PydanticCustomError:
    """Return the error to raise for a value that is not allowed. The user sees both texts unchanged."""
    return PydanticCustomError("refused", "{problem}", {"problem": problem, "hint": hint})


def text_of(value: Any) -> str:
    """Return the text of a single value, for reading it and for messages. Raise a refusal for a list or mapping."""
    if isinstance(value, Scalar):
        return "null" if value.is_null else value.text
    if isinstance(value, tuple | list | dict):
        raise refuse(f"expected a single value, got a {'mapping' if isinstance(value, dict) else 'list'}")
    return str(value)


def shown(value: Any) -> str:
    """Return a value as messages show it: ``'yes'``, ``null``."""
    return repr(value) if isinstance(value, Scalar) else f"'{value}'"


def integer(low: int, high: int, sample: int | None = None) -> FieldType:
    """A whole number in ``[low, high]``."""

    def read(value: Any) -> int:
        text = text_of(value)
        if len(text) > units.MAX_NUMBER_CHARACTERS:
            raise refuse(f"number has {len(text)} characters, limit {units.MAX_NUMBER_CHARACTERS}")
        if not _INTEGER.fullmatch(text):
            raise refuse(f"expected an integer, got {shown(value)}", units.why_no_number(text))
        number_read: int = _bounded(int(text), low, high, text)
        return number_read

    return FieldType(read, {"type": "integer", "minimum": low, "maximum": high}, sample=sample or max(low, 1))


def number(low: float, high: float, above: bool = False) -> FieldType:
    """A decimal number in ``[low, high]``; with ``above``, greater than ``low``."""
    least = units.parse_number(repr(low))

    def read(value: Any) -> float:
        text = text_of(value)
        exact = _understood(units.parse_number, text)
        _bounded(low if exact == least else exact, low, high, text, above=above)  # 0.001 as a float is above 0.001
        return float(exact)

    return FieldType(read, {"type": "number", "minimum": low, "maximum": high}, sample=high)


def exactly(wanted: int, hint: str) -> FieldType:
    def read(value: Any) -> int:
        if text_of(value) != str(wanted):
            raise refuse(f"{shown(value)} is not {wanted}", hint)
        return wanted

    return FieldType(read, {"const": wanted}, sample=wanted)


def one_of(*choices: Any) -> FieldType:
    """One of these words, or of these numbers as Python writes them."""
    by_text = {str(choice): choice for choice in choices}

    def read(value: Any) -> Any:
        text = text_of(value)
        if text not in by_text:
            raise refuse(f"{shown(value)} is not one of {', '.join(by_text)}", suggestion(text, by_text))
        return by_text[text]

    return FieldType(read, {"enum": list(choices)})


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = text_of(value)
    quoted = isinstance(value, Scalar) and value.quoted
    if text not in ("true", "false") or quoted:
        raise refuse(f"expected true or false, got {'quoted ' if quoted else ''}{shown(value)}")
    return text == "true"


def _name(value: Any) -> str:
    text = text_of(value)
    if not NAME_PATTERN.fullmatch(text):
        written = text.encode("unicode_escape").decode("ascii")
        raise refuse(f"'{written}' is not a valid name", name_cure(text))
    return text


def _text(value: Any) -> str:
    text = text_of(value)
    if not text.isprintable() or len(text) > 200:
        raise refuse("expected at most 200 printable characters")
    return text


@dataclass(frozen=True)
class Unit:
    """How quantities of one unit are read and written.

    low, high  bounds in SI units; a setting may have others
    example    a quantity as a user writes it
    """

    parse: Callable[[str], Any]
    write: Callable[[Any], str]
    low: float
    high: float
    example: str


UNITS = {
    "bit/s": Unit(units.parse_rate, units.format_rate, 1e3, 1e12, "20 Mbit/s"),
    "s": Unit(units.parse_duration, units.format_duration, 0.0, 720 * 3600.0, "50 ms"),
    "bytes": Unit(units.parse_size, units.format_size, 1, 16 << 30, "256 KiB"),
    "share": Unit(units.parse_share, units.format_share, 0.0, 1.0, "50 %"),
}


def quantity(
    unit: Unit, low: float, high: float, above: bool = False, or_zero: bool = False, cure: str = ""
) -> FieldType:
    """A quantity in ``[low, high]``, which is written again with its unit.

    above    whether ``low`` itself is refused
    or_zero  whether 0 is allowed although it is below ``low``
    cure     the hint for values above ``high``
    """
    sample = unit.parse(unit.example)

    def read(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        text = text_of(value)
        result = _understood(unit.parse, text)
        is_inside = low <= result <= high and not (above and result == low)
        if not is_inside and not (or_zero and result == 0):
            is_percent = unit.parse is units.parse_share and "%" not in text and 1 < result <= 100 * high
            hint = f"write '{text} %'" if is_percent else cure if result > high else ""
            raise refuse(f"{text} is outside {'(' if above else '['}{unit.write(low)}, {unit.write(high)}]", hint)
        return result

    return FieldType(
        read, {"type": ["string", "number"], "examples": [unit.example]}, unit.write, min(max(sample, low), high)
    )


def or_word(number_: FieldType, words: Mapping[str, Any]) -> FieldType:
    """A number or quantity, or a word that stands for one."""
    names = {value: word for word, value in words.items()}
    schema = {"anyOf": [{"enum": list(words)}, number_.json_schema]}

    def read(value: Any) -> Any:
        if isinstance(value, int) and value in names:
            return value
        text = value.text if isinstance(value, Scalar) else value
        return words[text] if isinstance(text, str) and text in words else number_.read(value)

    def write(value: Any) -> Any:
        return names[value] if value in names else number_.write(value) if number_.write else value

    return FieldType(read, schema, write, sample=number_.sample)


def or_nothing(leaf: FieldType, absent: Any) -> FieldType:
    """A value of ``leaf``, or ``null``, which stands for the value ``absent``."""

    def read(value: Any) -> Any:
        return absent if is_null(value) or value == absent else leaf.read(value)

    def write(value: Any) -> Any:
        return None if value == absent else leaf.write(value) if leaf.write else value

    schema = {"anyOf": [leaf.json_schema, {"type": "null"}]}
    return FieldType(read, schema, write, sample=leaf.sample)


def _understood(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except units.UnitError as error:
        raise refuse(error.problem, error.hint) from error


def _bounded(value: Any, low: float, high: float, text: str, *, above: bool = False) -> Any:
    if not low <= value <= high or (above and value == low):
        least, most = (bound if isinstance(bound, int) else f"{bound:g}" for bound in (low, high))
        raise refuse(f"{text} is outside {'(' if above else '['}{least}, {most}]")
    return value


BOOLEAN = FieldType(_boolean, {"type": "boolean"})
NAME = FieldType(_name, {"type": "string", "pattern": f"^{NAME_PATTERN.pattern}$"})
TEXT = FieldType(_text, {"type": "string", "maxLength": 200})
