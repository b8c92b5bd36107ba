"""Converts quantities with units, such as ``20 Mbit/s``, to SI numbers (``20_000_000.0`` bit/s), and back.

A quantity is a number, a space and a unit. The unit is required, as a bare ``10`` has cost people weeks. Sizes in
``KB`` and ``MB`` are decimal, those in ``KiB`` and ``MiB`` binary; rates are bits per second and always decimal.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

MAX_NUMBER_CHARACTERS = 25

_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_FLOAT = re.compile(r"[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|inf(inity)?|nan)", re.IGNORECASE)
_QUANTITY = re.compile(r"([-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?)\s*([^0-9:_].*)?")
# units of rates as other tools write them: a prefix, and the name of bits or bytes per second
_FOREIGN_RATE = re.compile(r"([kKmMgGtT]?)i?(bps|b/s|Bps|B/s|bit|bits/s|bit/sec|byte/s|bytes/s)")


class UnitError(ValueError):
    """A text is not a quantity of the expected kind. ``problem`` says why, ``hint`` says what to write instead."""

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} ({hint})" if hint else problem)


@dataclass(frozen=True)
class Dimension:
    """One kind of quantity. ``units`` maps a unit's name to its size in ``base``, from the largest to the smallest."""

    name: str
    base: str
    example: str
    units: dict[str, Fraction | int]


RATE = Dimension(
    "rate",
    "bit/s",
    "10 Mbit/s",
    {"Tbit/s": 10**12, "Gbit/s": 10**9, "Mbit/s": 10**6, "kbit/s": 1000, "bit/s": 1},
)
DURATION = Dimension(
    "time",
    "s",
    "50 ms",
    {"h": 3600, "min": 60, "s": 1, "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)},
)
SIZE = Dimension(
    "size",
    "bytes",
    "64 KiB",
    {
        "TiB": 2**40,
        "TB": 10**12,
        "GiB": 2**30,
        "GB": 10**9,
        "MiB": 2**20,
        "MB": 10**6,
        "KiB": 2**10,
        "KB": 1000,
        "bytes": 1,
        "byte": 1,
    },
)


def parse_number(text: str) -> Fraction:
    """Return an exact decimal number from a text such as ``32``, ``0.002`` or ``1e-3``. Raise ``UnitError``."""
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise UnitError(f"number has {len(text)} characters, limit {MAX_NUMBER_CHARACTERS}")
    if not _NUMBER.fullmatch(text):
        raise UnitError(f"expected a number, got '{text}'", why_no_number(text) or _without_per_cent(text))
    return Fraction(Decimal(text))


def parse_float(text: str) -> float:
    """Return a number from a file that a program has written; it may be infinite or NaN.

    Raise ``ValueError`` for anything else. This includes ``1_0`` and digits of other scripts: ``float`` accepts them,
    but in a file of numbers they are damage.
    """
    if not _FLOAT.fullmatch(text.strip()):
        raise ValueError(f"not a number: {text[:40]}")
    return float(text)


def parse_whole(text: str) -> int:
    """Return a whole number of at most ``MAX_NUMBER_CHARACTERS`` digits; ``ValueError`` for anything else."""
    if not re.fullmatch(r"[-+]?[0-9]+", text) or len(text) > MAX_NUMBER_CHARACTERS:
        raise ValueError(f"not a whole number: {text[:40]}")
    return int(text)


def why_no_number(text: str) -> str:
    """Return a hint for a text that YAML 1.1 or another language would read as a number; empty for other texts."""
    if re.fullmatch(r"[-+]?0[0-9]+", text):
        return "leading zeros are not allowed"
    if re.fullmatch(r"[0-9]+(:[0-9]+)+", text):
        return "sexagesimal notation is not supported"
    if re.fullmatch(r"[-+]?\.?(inf|nan)", text, re.IGNORECASE):
        return "it must be finite"
    if re.fullmatch(r"[0-9]+(_[0-9]+)+", text):
        return "write it without '_'"
    return ""


def _without_per_cent(text: str) -> str:
    """Return a hint for a share in per cent in place of a number; empty for other texts."""
    share = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", text)
    return f"write {Decimal(share[1]).scaleb(-2).normalize():f}, as a share of 1" if share else ""


def parse_rate(text: str) -> float:
    """Return bits per second from a text such as ``20 Mbit/s``. Raise ``UnitError``."""
    return _float(_parse(text, RATE), text)


def parse_duration(text: str) -> float:
    """Return seconds from a text such as ``50 ms``. Raise ``UnitError``."""
    return _float(_parse(text, DURATION), text)


def parse_size(text: str) -> int:
    """Return a whole number of bytes from a text such as ``64 KiB``. Raise ``UnitError``."""
    size = _parse(text, SIZE)
    if size.denominator != 1:
        raise UnitError(f"'{text}' is not a whole number of bytes")
    return int(size)


def parse_share(text: str) -> float:
    """Return a share of 1 from ``0.01`` or ``1 %``. Raise ``UnitError``."""
    number = text.removesuffix("%").rstrip()
    try:
        return _float(parse_number(number) / (100 if text.endswith("%") else 1), text)
    except UnitError as error:
        raise UnitError(f"expected a share, such as '1 %' or 0.01, got '{text}'", error.hint) from error


def format_rate(rate_bps: float) -> str:
    """Return ``20 Mbit/s`` for ``20_000_000.0``. ``parse_rate`` gives back exactly the same number."""
    return _format(rate_bps, RATE)


def format_duration(duration_s: float) -> str:
    """Return ``50 ms`` for ``0.05``. ``parse_duration`` gives back exactly the same number."""
    return _format(duration_s, DURATION)


def format_size(size_bytes: int) -> str:
    """Return ``64 KiB`` for ``65536``. ``parse_size`` gives back exactly the same number."""
    return _format(size_bytes, SIZE)


def format_share(share: float) -> str:
    """Return ``1 %`` for ``0.01``. ``parse_share`` gives back exactly the same number."""
    text = f"{format_number(float(Fraction(repr(share)) * 100))} %"
    return text if parse_share(text) == share else format_number(share)


def _float(value: Fraction, text: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise UnitError(f"'{text}' is too large") from error


def _parse(text: str, dimension: Dimension) -> Fraction:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        hint = why_no_number(text) or f"write a number and a unit, e.g. '{dimension.example}'"
        raise UnitError(f"expected a {dimension.name}, got '{text}'", hint)
    number, unit = match.groups()
    value = parse_number(number)
    if not unit:
        raise UnitError(f"{number} has no unit", f"write a unit, e.g. '{dimension.example}'")
    if unit not in dimension.units:
        raise UnitError(f"'{unit}' is not a unit of {dimension.name}", _unit_hint(value, unit, dimension))
    return value * dimension.units[unit]


def _unit_hint(value: Fraction, unit: str, dimension: Dimension) -> str:
    foreign = _FOREIGN_RATE.fullmatch(unit)
    if dimension is RATE and foreign:
        prefix, name = foreign.groups()
        bits = _float(value * (8 if name.startswith(("B", "byte")) else 1), unit)
        return f"write '{format_number(bits)} {'k' if prefix in ('k', 'K') else prefix.upper()}bit/s'"
    for known in dimension.units:
        if known.lower() == unit.lower():
            return f"write '{format_number(_float(value, unit))} {known}'"
    return f"one of {', '.join(dimension.units)}"


def _format(value: float, dimension: Dimension) -> str:
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    for unit, scale in dimension.units.items():
        text = format_number(float(exact / scale))
        if exact / scale >= 1 and len(text) <= 8 and type(value)(_parse(f"{text} {unit}", dimension)) == value:
            return f"{text} {unit}"
    return f"{format_number(value)} {dimension.base}"


def format_number(value: float) -> str:
    """Return ``1`` for ``1.0``: the shortest text from which ``parse_number`` gives back exactly the same number."""
    assert math.isfinite(value)
    return repr(value).removesuffix(".0")
