"""The file of golden values, and how values are compared with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("values.json")
NOT_SIMULATED = "not simulated"
TOLERANCE_S = 1e-9
_LIBRARIES = "libraries"


def read() -> dict[str, dict[str, Any]]:
    """Return the golden values of each scenario."""
    return {name: entry for name, entry in _content().items() if name != _LIBRARIES}


def libraries() -> dict[str, str]:
    """Return ``kernels.libraries`` of where they were written."""
    found: dict[str, str] = _content()[_LIBRARIES]
    return found


def write(entries: Mapping[str, Mapping[str, Any]], libraries: Mapping[str, str]) -> None:
    """Write one line for each scenario."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in {_LIBRARIES: libraries, **entries}.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def differences(golden: Mapping[str, Any] | None, found: Mapping[str, Any]) -> list[str]:
    """Return each field that differs, with both values. Why a scenario cannot be simulated may be worded otherwise."""
    if golden is None:
        return ["has no golden values (python -m tests.golden --write)"]
    if NOT_SIMULATED in golden and NOT_SIMULATED in found:
        return []
    return list(_differences("", golden, found))


def _differences(place: str, golden: Any, found: Any) -> Iterator[str]:
    if isinstance(golden, dict) and isinstance(found, dict):
        for key in {**golden, **found}:
            yield from _differences(f"{place} {key}".strip(), golden.get(key), found.get(key))
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for index, (before, now) in enumerate(zip(golden, found, strict=True)):
            yield from _differences(f"{place}[{index}]", before, now)
    elif isinstance(golden, float) and isinstance(found, float):
        if abs(golden - found) > TOLERANCE_S:
            yield f"{place}: {golden} -> {found}"
    elif golden != found:
        yield f"{place}: {golden} -> {found}"


def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content
