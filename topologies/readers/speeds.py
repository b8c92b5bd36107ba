"""Finds the rate of a link in a file of the Topology Zoo: in LinkSpeedRaw, LinkSpeed with units, or its label."""

from __future__ import annotations

import re

from topologies.readers.base import RATE_UNITS
from topologies.readers.raw import RawEdge
from topologies.text_file import TextFile

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
# A number must not follow a character of another number: "1,000 Mbps" is ambiguous, and its "000" is not a rate.
_TIMES = r"(?<![0-9.,])([0-9]+)\s*[x×*]\s*"
_AGAIN = r"(?:\s*[x×*]\s*([0-9]+)(?!\w|[.,][0-9]))?"
_NUMBER = r"(?<![0-9.,])([0-9]+(?:\.[0-9]+|,[0-9]{1,2}(?![0-9]))?)(?:\s*-\s*[0-9.,]+)?"
_LABEL = re.compile(rf"(?:{_TIMES})?{_NUMBER}\s*([kmgt])i?(?:b|bit|bits)?(?:ps|/s|/sec)?\b{_AGAIN}", re.IGNORECASE)
_SDH = re.compile(rf"(?:{_TIMES}|\b)(OC|STM)-?\s?([0-9]{{1,4}})(?![0-9])c?{_AGAIN}", re.IGNORECASE)
_SDH_MBIT = {"oc": 51.84, "stm": 155.52}  # rates of OC-1 (SONET) and STM-1 (SDH, ITU-T G.707)
SLOWEST_BPS = 9600.0  # the Zoo has no slower links, so a smaller number must be in another unit
FASTEST_BPS = 1e14  # 100 Tbit/s, above any single fibre pair of the Zoo


def rate_of(file: TextFile, edge: RawEdge, default_unit: str, unit: str | None) -> float | None:
    """Return the rate in bit/s; ``None`` if the file states none. Raise ``ScenarioError`` with the line if implausible.

    unit  of LinkSpeedRaw, if the user has named it
    """
    raw = _raw_speed(file, edge)
    stated = _from_speed(edge) or _from_label(edge.data.get("LinkLabel", ""))
    if raw is None:
        return stated
    rate = raw * RATE_UNITS[unit or default_unit]
    if unit is None and stated and not 0.5 < rate / stated < 2:
        problem = f"LinkSpeedRaw is {raw:g} bit/s, but the link is labelled {stated:g} bit/s"
        file.refuse(edge.line, problem, f"correct it, or give 'rate_unit' ({', '.join(RATE_UNITS)})")
    if unit is None and rate < SLOWEST_BPS:
        problem = f"LinkSpeedRaw is {raw:g}, which would be {rate:g} bit/s: another unit?"
        file.refuse(
            edge.line,
            problem,
            "give 'rate_unit: Mbit/s' or 'rate_unit: kbit/s', or 'rate_unit: bit/s' if that is right",
        )
    if rate > FASTEST_BPS:
        problem = f"a rate of {rate:g} bit/s is faster than any link"
        file.refuse(edge.line, problem, f"give 'rate_unit' ({', '.join(RATE_UNITS)})")
    return rate


def _raw_speed(file: TextFile, edge: RawEdge) -> float | None:
    text = edge.data.get("LinkSpeedRaw", "").strip()
    if text in ("", "None", "?"):
        return None
    problem = f"LinkSpeedRaw '{text[:30]}' is not a rate"
    cure = "write bits per second, or remove it"
    value = file.number(edge.line, text, problem, cure)
    return value if value > 0 else file.refuse(edge.line, problem, cure)


def _from_speed(edge: RawEdge) -> float | None:
    """Return the rate of, for example, LinkSpeed ``2.5`` with LinkSpeedUnits ``G``; ``None`` without these."""
    speed = edge.data.get("LinkSpeed", "")
    units = edge.data.get("LinkSpeedUnits", "").lower()
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", speed) or units[:1] not in _PREFIXES or not units:
        return None
    return float(speed) * _PREFIXES[units[:1]] or None


def _from_label(label: str) -> float | None:
    """Return the rate in a label such as ``10 Gbps``, ``155M``, ``2,5 Gbps``, ``OC-48`` or ``STM-16``, or ``None``.

    Of a range, ``10-20Gbps``, it is the lower end. Rates may be multiplied: ``2 x 10 Gbps``, ``10 Gbps x 2``.
    """
    if found := _SDH.search(label):
        before, unit, number, after = found.groups()
        rate = float(number) * _SDH_MBIT[unit.lower()] * 1e6
    elif found := _LABEL.search(label):
        before, number, unit, after = found.groups()
        rate = float(number.replace(",", ".")) * _PREFIXES[unit.lower()]
    else:
        return None
    rate *= float(before or 1) * float(after or 1)
    return rate if 0 < rate <= FASTEST_BPS else None
