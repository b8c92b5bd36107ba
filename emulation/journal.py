"""What a run makes outside its sandbox, written down before it is made, so that a dead run's leftovers can be found.

Inside the sandbox nothing needs cleaning: it dies with the launcher. Outside there are only the sandbox's own process
(which should be dead too) and temporary directories beside the journals. One file a run: its first line names the owner
(boot, process id and start time; a process id alone may be somebody else's by now), each further line one thing. Only
what is listed here is ever removed, by exact name.

Journals lie in ``journals`` in the user's directory for run-time state (``testbed.runtime_directory``), or in another
``base`` that must pass the same checks. A journal that is not as a run leaves it is reported to ``warn`` and skipped:
nothing that it lists is removed, and no run fails because of it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from emulation.journal_file import BadJournal, may_list, read
from emulation.process_id import ProcessId
from testbed.runtime_directory import private_directory, runtime_directory

_FIRST_LINE_S = 60.0

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a dead run left; ``journal`` is the file that lists it, and the last thing it lists."""

    thing: Path | ProcessId
    journal: Path

    @property
    def kind(self) -> str:
        """``process``, ``path`` or ``journal``."""
        if isinstance(self.thing, ProcessId):
            return "process"
        return "journal" if self.thing == self.journal else "path"

    def __str__(self) -> str:
        return f"{self.kind} {self.thing.pid if isinstance(self.thing, ProcessId) else self.thing}"


class Journal:
    """The journal of the calling process' run. ``close`` when everything listed is gone."""

    def __init__(self, base: Path | None = None) -> None:
        self._base = _checked(base)
        owner = ProcessId.of(os.getpid())
        name = f"{owner.pid}-{owner.start_ticks}-{secrets.token_hex(4)}.jsonl"
        self._path = private_directory(self._base / "journals") / name
        # new, so that it is nobody else's, and kept open, so that no later line goes to another file of that name
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._append(asdict(owner))

    def path(self, path: Path) -> None:
        """Note a temporary directory before it is made. Raise ``ValueError`` for one that would not be removed."""
        if not may_list(path, self._base):
            raise ValueError(f"{path}: not the name of a temporary directory in {self._base}")
        self._append({"path": str(path)})

    def process(self, pid: int) -> None:
        """Note a process that must not outlive the run."""
        self._append({"process": asdict(ProcessId.of(pid))})

    def close(self) -> None:
        """Remove the journal."""
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _append(self, entry: dict[str, object]) -> None:
        os.write(self._file, (json.dumps(entry) + "\n").encode())
        os.fsync(self._file)


def leftovers(warn: Warn, base: Path | None = None) -> list[Leftover]:
    """Return what dead runs have left, last made first. The things of runs that still live are never listed."""
    base = _checked(base)
    found: list[Leftover] = []
    for journal in sorted(private_directory(base / "journals").glob("*.jsonl")):
        try:
            found += _left_by(journal, base)
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
        if leftover.thing in unfinished:
            continue
        try:
            leftover.thing.kill() if isinstance(leftover.thing, ProcessId) else _remove(leftover.thing)
        except OSError as error:
            unfinished.add(leftover.journal)
            warn(f"{leftover} of a dead run is still there: {error.strerror}")
        else:
            removed.append(leftover)
    return removed


def _checked(base: Path | None) -> Path:
    return runtime_directory() if base is None else private_directory(base)


def _left_by(journal: Path, base: Path) -> list[Leftover]:
    contents = read(journal, base)
    if contents.owner.alive() if contents.owner else _just_made(journal):
        return []
    things = [*reversed(contents.things), journal]
    return [Leftover(thing, journal) for thing in things if _still_there(thing)]


def _still_there(thing: Path | ProcessId) -> bool:
    if isinstance(thing, Path):
        return os.path.lexists(thing)
    if thing.alive() and not thing.ours():
        raise BadJournal(f"it lists process {thing.pid}, which is another user's")
    return thing.alive()


def _just_made(journal: Path) -> bool:
    """Return whether its owner may be about to write its first line."""
    return time.time() - journal.lstat().st_mtime < _FIRST_LINE_S


def _remove(path: Path) -> None:
    """Remove ``path``, whose parent has passed its checks. Nothing that a symbolic link leads to is removed."""
    with _opened(path.parent) as parent, suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, dir_fd=parent)
        else:
            os.unlink(path.name, dir_fd=parent)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
