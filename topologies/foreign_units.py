"""Units as other tools write them: ``100 Mbit``, ``Mbps``, ``MB/s``, ``50 ms``, ``percent``.

A unit is a pair: its dimension, ``rate``, ``time`` or ``share``, and its size in bit/s, s or as a share. ``b`` is a bit
and ``B`` a byte, so ``mbps`` is megabits per second.
"""

from __future__ import annotations

import re

from testbed.units import parse_float

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
_RATE = re.compile(r"([kKmMgGtT]?)(i?)(b|B|[bB]its?|[bB]ytes?)(ps|/s|/sec|psec|/second|_s|_per_s|_sec)?")
_WORDS = {"kilo": "k", "mega": "m", "giga": "g", "tera": "t"}
_TIMES = {
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "millis"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_SHARES = {"%": 0.01, "percent": 0.01, "pct": 0.01, "share": 1.0, "fraction": 1.0}
_QUANTITY = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(\S.*?)?\s*")


def unit_of(text: str) -> tuple[str, float] | None:
    """Return the dimension and size of a unit; ``None`` if the text is not a unit."""
    word = text.strip()
    if word.lower() in _TIMES:
        return "time", _TIMES[word.lower()]
    if word.lower() in _SHARES:
        return "share", _SHARES[word.lower()]
    for name, prefix in _WORDS.items():
        word = re.sub(rf"^{name}(?=b)", prefix, word, flags=re.IGNORECASE)
    found = _RATE.fullmatch(word)
    if found is None:
        return None
    prefix, binary, what, per_second = found.groups()
    if what in ("b", "B") and (not per_second or (not prefix and per_second == "_s")):  # "b", "kB", "b_s": not rates
        return None
    size = (_BINARY if binary and prefix else _PREFIXES)[prefix.lower()]
    return "rate", size * (8.0 if what[0] == "B" or what.lower().startswith("byte") else 1.0)


def quantity_of(text: str) -> tuple[float, tuple[str, float] | None] | None:
    """Return the number and unit of a text such as ``50 ms``; the unit is ``None`` if there is none.

    ``None`` if the text is not such a quantity.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    known = unit_of(unit) if unit else None
    if unit and known is None:
        return None
    try:
        return parse_float(number), known
    except ValueError:
        return None
