"""How commands and their arguments are read: as a list, or as one text that is split as a shell splits it."""

from __future__ import annotations

import shlex
from typing import Any

from testbed.scenario.reading.quantities import FieldType, is_null, refuse, text_of

MAX_ARGUMENT = 4096


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


ARGUMENT = FieldType(_argument, {"type": ["string", "number"], "maxLength": MAX_ARGUMENT}, sample="")
COMMAND = FieldType(
    _command,
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]},
    list,
    sample=("true",),
)
