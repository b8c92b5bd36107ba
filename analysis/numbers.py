"""Numbers as words: three digits and the unit that reads best, never a power of ten; in figures and reports alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MISSING = "–"
_TIMES = ((0.9995, 1e-3, "ms"), (999.5, 1.0, "s"), (59_970.0, 60.0, "min"))  # below, unit in seconds, its name
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def short(value: float) -> str:
    """Return a number with three significant digits, and all digits before the point."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def seconds(value_s: float | None) -> str:
    """Return a duration in ms, s, min or h."""
    if value_s is None:
        return MISSING
    for below, unit_s, name in _TIMES:
        if abs(value_s) < below:
            return f"{short(value_s / unit_s)} {name}"
    return f"{short(value_s / 3600)} h"


def size(value_bytes: float | None) -> str:
    """Return a number of bytes with a decimal prefix."""
    if value_bytes is None:
        return MISSING
    for factor, name in _SIZES:
        if abs(value_bytes) >= 0.9995 * factor:
            return f"{short(value_bytes / factor)} {name}"
    return f"{value_bytes:.0f} B"


def share(value: float | None) -> str:
    return MISSING if value is None else f"{value * 100:.3g} %"


def span(least: int, most: int) -> str:
    """Return one number, or two where the workers' differ."""
    return str(least) if least == most else f"{least}–{most}"


def per_worker(result: Mapping[str, Any], what: str) -> str:
    """Return ``steps`` or ``samples`` of a worker in a ``result.json``; those of earlier releases do not state them."""
    ends = result.get(f"{what}_per_worker")
    return span(*ends) if ends else MISSING


def target(share_wanted: float) -> str:
    """Return a target accuracy as it was written: ``97.5%`` is not 98%."""
    return f"{100 * share_wanted:g}%"
