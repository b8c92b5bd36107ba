"""Formats numbers for people: three significant digits, the unit that reads best, and never a power of ten.

Tables, summaries, figures and reports use these functions. ``testbed.units`` writes the quantities of a scenario, which
must not lose digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, isnan
from typing import Any

MISSING = "–"
LEAST = 1e-3  # smaller numbers are printed as '<0.001'
_TIMES = (  # durations below the first value are written in this unit: its seconds and its name
    (0.9995e-3, 1e-6, "µs"),
    (0.9995, 1e-3, "ms"),
    (999.5, 1.0, "s"),
    (59_970.0, 60.0, "min"),
)
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def short(value: float | None) -> str:
    """Return a number with three significant digits, but all digits before the point; ``–`` for None and NaN."""
    if value is None or isnan(value):
        return MISSING
    if abs(value) >= 99.95 or not isfinite(value):
        return f"{value:.0f}"
    if 0 < abs(value) < LEAST:
        return f"<{LEAST:g}" if value > 0 else f">-{LEAST:g}"
    return f"{value:.3g}"


def seconds(value_s: float | None) -> str:
    """Return a duration in µs, ms, s, min or h."""
    if value_s is None or isnan(value_s):
        return MISSING
    if value_s == 0:
        return "0 s"
    if abs(value_s) < 0.5e-6:  # event logs keep microseconds
        return "<1 µs"
    for below, unit_s, name in _TIMES:
        if abs(value_s) < below:
            return f"{short(value_s / unit_s)} {name}"
    return f"{short(value_s / 3600)} h"


def lasting(value_s: float) -> str:
    """Return a duration as people say it: ``5 h 50 min``, ``2 min 5 s``. Below a minute, it equals ``seconds``."""
    if value_s < 59.5:
        return seconds(value_s)
    in_hours = value_s >= 3599.5
    large_s, small_s = (3600, 60) if in_hours else (60, 1)
    large, small = divmod(round(value_s / small_s), large_s // small_s)
    names = ("h", "min") if in_hours else ("min", "s")
    return f"{large} {names[0]}" + (f" {small} {names[1]}" if small else "")


def size(value_bytes: float | None) -> str:
    """Return a number of bytes with a decimal prefix."""
    if value_bytes is None:
        return MISSING
    for factor, name in _SIZES:
        if abs(value_bytes) >= 0.9995 * factor:
            return f"{short(value_bytes / factor)} {name}"
    return f"{value_bytes:.0f} B"


def share(value: float | None) -> str:
    """Return a share, such as an accuracy, in per cent."""
    return MISSING if value is None or isnan(value) else f"{short(value * 100)} %"


def share_below(value: float | None, wanted: float) -> str:
    """Return a share with enough digits to show that it is below ``wanted``: ``87.96 %`` if that is 88 %."""
    if value is None or isnan(value) or value >= wanted:
        return share(value)
    percent = 100 * value
    for digits in range(3, 17):
        if float(f"{percent:.{digits}g}") < 100 * wanted:
            break
    return share(value) if digits == 3 else f"{percent:.{digits}g} %"


def factor(value: float | None) -> str:
    """Return a factor: ``1.33×``."""
    return MISSING if value is None or isnan(value) else f"{short(value)}×"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 worker``, ``2 workers``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def span(least: int, most: int) -> str:
    """Return a range of numbers, ``1–3``; or one number if both ends are equal."""
    return str(least) if least == most else f"{least}–{most}"


def spanned(least: int, most: int, noun: str) -> str:
    """Return ``span`` with the noun that goes with it: ``1 step``, ``1–3 steps``."""
    return f"{span(least, most)} {noun if least == most == 1 else noun + 's'}"


def between(low: str, high: str, word: str = " to ") -> str:
    """Join two quantities to ``3 to 33 s``. If their units differ, each keeps its own."""
    number, _, unit = low.partition(" ")
    return f"{number}{word}{high}" if unit and high.endswith(f" {unit}") else f"{low}{word}{high}"


def per_worker(result: Mapping[str, Any], what: str) -> str:
    """Return the ``steps`` or ``samples`` per worker in a ``result.json``; files of earlier releases lack them."""
    ends = result.get(f"{what}_per_worker")
    return span(*ends) if ends else MISSING


def rounds_of_workers(result: Mapping[str, Any]) -> str:
    """Return the completed rounds in a ``result.json``: one number for all workers, or the fewest and the most."""
    return span(*result.get("rounds_per_worker", (result["rounds"],) * 2))


def target(share_wanted: float) -> str:
    """Return a target accuracy with all its digits: ``97.5 %``."""
    return f"{100 * share_wanted:g} %"


def cell(value: object) -> str:
    """Return the value of a table's cell as text; the items of a sequence are separated by commas."""
    if value is None:
        return MISSING
    if isinstance(value, float):  # includes numpy's float64
        return short(value)
    if isinstance(value, tuple | list):
        return ", ".join(cell(each) for each in value)
    return str(value)
