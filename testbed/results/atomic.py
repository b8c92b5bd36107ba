"""Writes files atomically: whatever happens, a file is either absent or complete.

The bytes go to ``.<name>.<pid>-<start>-<space>.tmp`` in the same directory and are synced. Then the file is renamed,
and the directory is synced last. A process that is killed before the renaming leaves its temporary file; ``sweep``
removes the files of dead processes. Process ids of other machines and of emulations belong to another space and mean
nothing here, so the files of such writers are removed when nothing has been written to them for an hour.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed.process_id import ProcessId, pid_space, start_ticks

_TEMPORARY = re.compile(r"\..+\.(\d+)-(\d+)-([0-9a-f]{8})\.tmp")
_ABANDONED_S = 3600.0
_AT_ONCE = 8


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes ``path`` if the block ends without an error."""
    with _temporary(path) as temporary:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - os.replace states that it is atomic
    sync(path.parent)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``. If it still exists at the end of the block, it is removed."""
    me = ProcessId.current()
    temporary = path.with_name(f".{path.name}.{me.pid}-{me.start_ticks}-{pid_space()}.tmp")
    try:
        yield temporary
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        # name ``path`` instead of the temporary file, with the system's message instead of a library's
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    finally:
        with suppress(OSError):  # the directory may have gone
            temporary.unlink()


def write_together(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write several files of one directory, by name. They are synced at the same time, which lets a disk commit them
    together."""
    with ExitStack() as stack:
        temporaries = {name: stack.enter_context(_temporary(directory / name)) for name in files}
        for name, temporary in temporaries.items():
            temporary.write_bytes(files[name])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(sync, temporaries.values()))
        for name, temporary in temporaries.items():
            os.replace(temporary, directory / name)  # noqa: PTH105 - as in ``replacing``
    sync(directory)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``. At every moment, the file has either the old or the new content."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write ``text``; see ``write_bytes`` and ``text_bytes``."""
    write_bytes(path, text_bytes(text))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON; see ``write_bytes`` and ``json_bytes``."""
    write_bytes(path, json_bytes(value))


def text_bytes(text: str) -> bytes:
    """Return ``text`` in UTF-8. Bytes of paths that are not UTF-8 become escapes, as in JSON."""
    return text.encode(errors="backslashreplace")


def json_bytes(value: Any) -> bytes:
    """Return indented JSON. NaN and infinity raise ``ValueError``: callers write ``None`` for unknown values."""
    return text_bytes(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def sweep(directory: Path) -> list[Path]:
    """Remove temporary files below ``directory`` whose writers are dead or presumed dead; return their paths."""
    removed = []
    for path in sorted(directory.rglob(".*.tmp")):
        match = _TEMPORARY.fullmatch(path.name)
        if match and _is_left(path, int(match[1]), int(match[2]), match[3]):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _is_left(path: Path, pid: int, ticks: int, space: str) -> bool:
    if space == pid_space():
        return start_ticks(pid) != ticks
    try:
        return _is_old(path)
    except FileNotFoundError:  # the writer has just finished
        return False


def changed_lately(directory: Path) -> bool:
    """Return whether anything in a directory has changed in the last hour, so that its writer may be alive."""
    for folder, _, files in os.walk(directory):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            with suppress(FileNotFoundError):  # the file has just been replaced
                if not _is_old(path):
                    return True
    return False


def _is_old(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _ABANDONED_S


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
