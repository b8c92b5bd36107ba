"""How one value of a declared field is read, by its type and the facts of its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from testbed.declaration import limits_of
from testbed.scenario.reading import quantities
from testbed.scenario.reading.forms import FORMS


def leaf(hint: Any, facts: Mapping[str, Any]) -> Any:
    """Return the reader of one value."""
    if "form" in facts:
        form = facts["form"]
        found = FORMS[form] if isinstance(form, str) else form
    elif "unit" in facts:
        found = _quantity(facts)
    elif "choices" in facts:
        found = quantities.one_of(*facts["choices"])
    elif hint is bool:
        found = quantities.BOOLEAN
    elif hint in (int, float):
        found = _number(hint, facts)
    else:
        assert hint is str, f"a setting of type {hint} needs a form"  # ``Axis._load`` has checked users' techniques
        found = quantities.TEXT
    if "words" in facts:
        found = quantities.or_word(found, facts["words"])
    return quantities.or_nothing(found, facts["absent"]) if "absent" in facts else found


def _quantity(facts: Mapping[str, Any]) -> quantities.FieldType:
    unit = quantities.UNITS[facts["unit"]]
    if "example" in facts:
        unit = replace(unit, example=facts["example"])
    low = facts.get("above", facts.get("min", unit.low))
    high = facts.get("max", unit.high)
    zero = facts.get("or_zero", False)
    return quantities.quantity(unit, low, high, above="above" in facts, or_zero=zero, cure=facts.get("cure", ""))


def _number(hint: Any, facts: Mapping[str, Any]) -> quantities.FieldType:
    low, high, above = limits_of(hint, facts)
    if hint is float:
        return quantities.number(low, high, above)
    return quantities.integer(low + above, high, facts.get("sample"))
