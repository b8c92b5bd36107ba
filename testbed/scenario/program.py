"""Scenarios whose workload is a command: the sections that have no effect, and what replaces them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from testbed.scenario.reading.files import allows_code
from testbed.scenario.reading.forms import COMMAND
from testbed.scenario.reading.quantities import is_null, text_of
from testbed.scenario.reading.violations import Violation, raise_found

LARGEST_READ_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_OWN = "the program has its own; remove it"
WITHOUT_EFFECT: Mapping[str, str] = {  # sections, each with the cure
    "training": "write what it needs to know as arguments of the command; remove it",
    **dict.fromkeys(("paradigm", "sync", "optimizer", "codec", "order", "overlay", "shard", "aggregation"), _OWN),
    "device": "the program computes as fast as it can here; remove it",
    "checkpoint": _OWN,
    "recovery": "the program itself handles lost processes; remove it",
    "simulation": "remove it",
    "timeouts": "write 'workload: {timeout: 10 min}'; remove it",
}
TRANSPORT_WITHOUT_EFFECT = ("mac", "tls", "unsent_limit", "shared_memory")  # of the testbed's own connections
_TRAINING = {"model": {"kind": "user_program"}, "data": {"kind": "user_program"}, "rounds": 1}


def with_program(data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return the scenario's tree with a ``training`` that is only a placeholder.

    Raise a refusal for sections without effect, and for commands in a file that may not name code.
    """
    if data.get("training") == _TRAINING:
        return data
    workload = data["workload"]
    if not allows_code(info):
        problem = "names commands, but this file is not at or below the working directory"
        raise_found([Violation(("workload",), problem, "read them first, then give --allow-code")])
    raise_found(_sections_without_effect(data))
    folder: Path = (info.context or {}).get("folder") or Path.cwd()
    cwd = workload.get("cwd")
    place = (folder / ("" if is_null(cwd) else text_of(cwd))).resolve()
    if not place.is_dir():
        raise_found([Violation(("workload", "cwd"), f"there is no directory {place}")])
    try:
        os.fsencode(place).decode()
    except UnicodeDecodeError:
        problem = "the path of this directory is not UTF-8, but the program gets it as text"
        raise_found([Violation(("workload", "cwd"), problem, "run it in another directory")])
    found = {"cwd": str(place), "sha256": _digest(workload, place)}
    return {**data, "workload": {**workload, **found}, "training": _TRAINING}


def without_sections(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return a resolved scenario without the sections and keys that a command makes useless."""
    kept = {key: value for key, value in resolved.items() if key not in WITHOUT_EFFECT}
    transport = {key: value for key, value in kept["transport"].items() if key not in TRANSPORT_WITHOUT_EFFECT}
    workload = {key: value for key, value in kept["workload"].items() if key != "sha256"}
    return {**kept, "transport": transport, "workload": workload}


def _sections_without_effect(data: dict[str, Any]) -> Iterator[Violation]:
    for key, cure in WITHOUT_EFFECT.items():
        if key in data and not is_null(data[key]):
            yield Violation((key,), "has no effect beside 'workload: {command: …}'", cure)
    transport = data.get("transport")
    given = transport if isinstance(transport, dict) else {}
    for key in TRANSPORT_WITHOUT_EFFECT:
        if key in given:
            problem = "is for the testbed's own connections, but a program opens its own"
            yield Violation(("transport", key), problem, "remove it")


def _digest(workload: dict[str, Any], place: Path) -> str:
    """Return a digest of the files that the commands name, so that a changed program makes a different run.

    A file above ``LARGEST_READ_BYTES`` is data rather than a program; its name, size and time of the last change stand
    for its content.
    """
    found: list[tuple[str, int, int]] = []
    for key in ("first", "command"):
        try:
            arguments = COMMAND.read(workload.get(key))
        except PydanticCustomError:  # reported when the section is read
            continue
        for path in (place / argument for argument in arguments if argument):
            with suppress(OSError):  # too long a name, or no such file
                about = path.stat()
                if stat.S_ISREG(about.st_mode):
                    found.append((str(path), about.st_size, about.st_mtime_ns))
    return _digest_of(tuple(found))


@lru_cache(maxsize=128)  # the points of a sweep name the same files
def _digest_of(files: tuple[tuple[str, int, int], ...]) -> str:
    """Return a digest of these files (path, size, time of the last change in ns)."""
    digest = hashlib.sha256()
    for path, size_bytes, changed_ns in files:
        if size_bytes > LARGEST_READ_BYTES:
            digest.update(f"{Path(path).name} {size_bytes} {changed_ns}".encode())
            continue
        with suppress(OSError), open(path, "rb") as file:  # not readable
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    return digest.hexdigest()
