"""One journal, read and checked: what is not certainly written by a run of the same user is refused as a whole."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulation.process_id import ProcessId

LIMIT_BYTES = 64 * 1024  # a run notes a few lines
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class BadJournal(Exception):
    """A journal that cannot be relied on; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The owner of a journal (None while its first line is not written), and the processes that it lists."""

    owner: ProcessId | None
    processes: tuple[ProcessId, ...]


def read(journal: Path) -> Contents:
    """Return the content of ``journal``.

    Raise ``BadJournal`` if the file or its content is not as a run leaves it, ``FileNotFoundError`` if it is gone.
    """
    try:
        entries = [_object(line) for line in _content(journal).decode().split("\n")[:-1]]  # the last may be torn
    except UnicodeDecodeError:
        raise BadJournal("it is not text") from None
    if not entries:
        return Contents(None, ())
    return Contents(_process(entries[0]), tuple(map(_listed, entries[1:])))


def _content(journal: Path) -> bytes:
    try:
        # NONBLOCK: a pipe in its place must not stop us before it is seen to be one
        descriptor = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadJournal(f"it cannot be opened: {error.strerror}") from error
    try:
        _check(os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise BadJournal(f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > LIMIT_BYTES:
        raise BadJournal(f"it has more than {LIMIT_BYTES} bytes")
    return content


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BadJournal("it is not a regular file")
    if found.st_uid != os.geteuid():
        raise BadJournal(f"it belongs to user {found.st_uid} and not to user {os.geteuid()}")
    if found.st_mode & _OTHERS_WRITE:
        raise BadJournal(f"others can write to it (mode {stat.S_IMODE(found.st_mode):04o})")
    if found.st_nlink > 1:  # none: somebody else has cleaned while we opened it
        raise BadJournal(f"it has {found.st_nlink} names")


def _object(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise BadJournal("a line is not JSON") from None
    if not isinstance(entry, dict):
        raise BadJournal("a line is not an object")
    return entry


def _listed(entry: dict[str, Any]) -> ProcessId:
    match entry:
        case {"process": dict(process)} if len(entry) == 1:
            return _process(process)
    raise BadJournal("a line lists something other than a process")


def _process(entry: dict[str, Any]) -> ProcessId:
    match entry:
        case {"pid": int(pid), "start_ticks": int(ticks), "boot": str(boot)} if len(entry) == 3:
            if 0 < pid < 2**31 and type(pid) is type(ticks) is int:  # True is an int too
                return ProcessId(pid, ticks, boot)
    raise BadJournal("a line does not tell a process by number, start and boot")
