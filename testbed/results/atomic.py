"""Files that are absent or whole, whatever happens while they are written.

The bytes go to ``.<name>.<pid>-<start>.tmp`` in the same directory, are synced, and then take the name; the directory
is synced last. A process killed on the way leaves its temporary file: ``sweep`` removes those of dead processes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.results import owner

_TEMPORARY = re.compile(r"\..+\.(\d+)-(\d+)\.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to; it becomes ``path`` when the block ends without an error."""
    me = owner.current()
    temporary = path.with_name(f".{path.name}.{me.pid}-{me.start_ticks}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - the name says what it must be: one atomic step
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which holds the old or the new content at every moment."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """As ``write_bytes``, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Readable JSON. Not-a-number and infinity are errors: callers say ``None`` for what is not known."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def is_temporary(name: str) -> bool:
    """Whether a file of that name is one of ours on its way."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(directory: Path) -> list[Path]:
    """Remove the temporary files that dead processes left anywhere below ``directory``; returns what was removed."""
    removed = []
    for path in sorted(directory.rglob(".*.tmp")):
        match = _TEMPORARY.fullmatch(path.name)
        if match and owner.start_ticks(int(match[1])) != int(match[2]):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
