"""The processes that a run starts outside its sandbox, on disk, so that those of a run that was killed can be ended.

Inside the sandbox nothing needs cleaning: it dies with the launcher. Outside there is only the sandbox's own process,
which should be dead too. One file per run: the first line names the owner (boot, process id and start time; a process
id alone may have been reused), each further line one process. Nothing else is ended, and no path is ever removed but
the journal itself.

Journals lie in ``journals`` in the user's directory for run-time state (``testbed.runtime_directory``), or in another
``base`` that must pass the same checks. A journal with unexpected content is reported to ``warn`` and skipped: no
process that it lists is ended, and no run fails because of it.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from testbed.process_id import ProcessId
from testbed.runtime_directory import private_directory, runtime_directory

LIMIT_BYTES = 64 * 1024  # a run notes a few lines
_FIRST_LINE_S = 60.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

Warn = Callable[[str], None]


class BadJournal(Exception):
    """A journal that is not certainly written by a run of the same user; the message is the reason."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A line after the first."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that a dead run left, or, without one, its journal."""

    journal: Path
    process: ProcessId | None = None

    @property
    def kind(self) -> str:
        """``process`` or ``journal``."""
        return "process" if self.process else "journal"

    def __str__(self) -> str:
        return f"process {self.process.pid}" if self.process else f"journal {self.journal}"

    def remove(self) -> None:
        """End the process, or remove the journal. Raise ``OSError`` if that is not permitted."""
        if self.process:
            self.process.kill()
        else:
            self.journal.unlink(missing_ok=True)


class Journal:
    """The journal of the calling process' run. ``close`` it when every listed process has ended."""

    def __init__(self, base: Path | None = None) -> None:
        owner = ProcessId.of(os.getpid())
        name = f"{owner.pid}-{owner.start_ticks}-{secrets.token_hex(4)}.jsonl"
        self._path = _directory(base) / name
        # new, so that it is this process' own; kept open, so that no later line goes to another file of that name
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._append(owner)

    def process(self, pid: int) -> None:
        """Note a process that must not outlive the run; nothing if it has ended already."""
        with suppress(ProcessLookupError):
            self._append(_Entry(ProcessId.of(pid)))

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _append(self, entry: ProcessId | _Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")
        os.fsync(self._file)


def leftovers(warn: Warn, base: Path | None = None) -> list[Leftover]:
    """Return what dead runs have left, never anything of a live run.

    The processes of a journal come in the reverse order of their start, then the journal itself.
    """
    found: list[Leftover] = []
    for journal in sorted(_directory(base).glob("*.jsonl")):
        try:
            found += _left_by(journal)
        except BadJournal as reason:
            warn(f"journal {str(journal)!r} of an earlier run is not used: {reason}; once looked at, remove it")
        except FileNotFoundError:  # its run ended, or somebody else cleans too
            continue
    return found


def clean(warn: Warn, base: Path | None = None) -> list[Leftover]:
    """Remove every leftover and return what was removed."""
    removed: list[Leftover] = []
    unfinished: set[Path] = set()  # journals that are still needed
    for leftover in leftovers(warn, base):
        if leftover.process is None and leftover.journal in unfinished:
            continue
        try:
            leftover.remove()
        except OSError as error:
            unfinished.add(leftover.journal)
            warn(f"{leftover} of a dead run is still there: {error.strerror}")
        else:
            removed.append(leftover)
    return removed


def _directory(base: Path | None) -> Path:
    return private_directory((runtime_directory() if base is None else private_directory(base)) / "journals")


def _left_by(journal: Path) -> list[Leftover]:
    lines = _content(journal).split(b"\n")[:-1]  # the last may be torn
    try:
        owner = msgspec.json.decode(lines[0], type=ProcessId) if lines else None
        listed = [msgspec.json.decode(line, type=_Entry).process for line in lines[1:]]
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadJournal(f"a line is not one that a run writes: {error}") from None
    # without a first line, its owner may be about to write it
    if owner.alive() if owner else time.time() - journal.lstat().st_mtime < _FIRST_LINE_S:
        return []
    alive = [process for process in reversed(listed) if process.alive()]
    for process in alive:
        if not process.ours():
            raise BadJournal(f"it lists process {process.pid}, which is another user's")
    return [*(Leftover(journal, process) for process in alive), Leftover(journal)]


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
