"""Readers for values other than plain texts, numbers and quantities, by the names that declarations use (``form``).

A command is a list, or one text, which is split as a shell would split it.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Mapping
from typing import Any

from testbed.scenario.reading.quantities import NAME, FieldType, is_null, refuse, text_of
from testbed.scenario.reading.tables import COSTS, PROFILE, STEP_TIMES

MAX_ARGUMENT = 4096
_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")
_LABEL = re.compile(r"[^\s=]+=[^\s=]+")


def _argument(value: Any) -> str:
    if isinstance(value, dict):
        keys = ", ".join(map(str, value))
        raise refuse("expected a text, got a mapping", f'for a placeholder, write "{{{keys}}}" in quotes')
    text = text_of(value)
    if "\0" in text or len(text) > MAX_ARGUMENT:
        raise refuse(f"expected at most {MAX_ARGUMENT} characters, none of them NUL")
    return text


def _command(value: Any) -> tuple[str, ...]:
    if is_null(value):
        return ()
    if isinstance(value, list | tuple):
        return tuple(_argument(entry) for entry in value)
    try:
        return tuple(shlex.split(_argument(value)))
    except ValueError as error:
        raise refuse(f"not a command: {str(error).lower()}", "write it as a list: [python, train.py]") from error


def _ports(value: Any) -> tuple[int, int]:
    if isinstance(value, tuple):
        return value
    text = text_of(value)
    found = _PORTS.fullmatch(text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise refuse(f"'{text}' is not a range of ports from 1024 to 65535", "write e.g. '20000-20099'")
    return first, last


def _address(value: Any) -> str:
    text = text_of(value)
    try:
        return str(ipaddress.IPv4Address(text)) if text else ""
    except ValueError as error:
        raise refuse(f"'{text}' is not an IPv4 address", "write e.g. '203.0.113.7'") from error


def _label(value: Any) -> str:
    text = text_of(value)
    if text and not _LABEL.fullmatch(text):
        raise refuse(f"'{text}' is not a label", "write 'key=value', as in `ray start --labels key=value`")
    return text


ARGUMENT = FieldType(_argument, {"type": ["string", "number"], "maxLength": MAX_ARGUMENT}, sample="")
COMMAND = FieldType(
    _command,
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]},
    list,
    sample=("true",),
)
FORMS: Mapping[str, Any] = {
    "name": NAME,
    "argument": ARGUMENT,
    "command": COMMAND,
    "ports": FieldType(_ports, {"type": "string", "examples": ["20000-20099"]}, lambda ports: f"{ports[0]}-{ports[1]}"),
    "address": FieldType(_address, {"type": "string", "examples": ["203.0.113.7"]}),
    "label": FieldType(_label, {"type": "string", "examples": ["dc=tokyo"]}),
    "costs": COSTS,
    "profile": PROFILE,
    "step_times": STEP_TIMES,
}
"""Leaves or, for values that take a table, whole types."""
