"""What a run makes outside its sandbox, written down before it is made, so that a dead run's leftovers can be found.

Inside the sandbox nothing needs cleaning: it dies with the launcher. Outside there are only the sandbox's own process
(which should be dead too) and temporary paths. One file a run: its first line names the owner (boot, process id and
start time; a process id alone may be somebody else's by now), each further line one thing. Only what is listed here is
ever removed, by exact name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(tempfile.gettempdir()) / f"testbed-journal-{os.getuid()}"
_FIRST_LINE_S = 60.0
_START_TIME_FIELD = 19  # of /proc/<pid>/stat, counted after the name in brackets


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one with the same number."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """``ProcessLookupError`` if there is no such process."""
        return cls(pid, _start_ticks(pid), _boot())

    def alive(self) -> bool:
        try:
            return ProcessId.of(self.pid) == self
        except ProcessLookupError:
            return False


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a dead run left: a ``path`` or a ``process``; ``journal`` is the file that lists it."""

    kind: str
    name: str
    journal: Path

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Journal:
    """The journal of the calling process' run. ``close`` when everything listed is gone."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = ProcessId.of(os.getpid())
        self._path = directory / f"{owner.pid}-{owner.start_ticks}.jsonl"
        self._append(asdict(owner))

    def path(self, path: Path) -> None:
        """Note a temporary file or directory, before it is made."""
        self._append({"path": str(path.resolve())})

    def process(self, pid: int) -> None:
        """Note a process that must not outlive the run."""
        self._append({"process": asdict(ProcessId.of(pid))})

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    def _append(self, entry: dict[str, object]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def leftovers(directory: Path | None = None) -> list[Leftover]:
    """What dead runs have left, last made first. The things of runs that still live are never listed."""
    directory, found = directory or DIRECTORY, []
    for journal in sorted(directory.glob("*.jsonl")) if directory.is_dir() else []:
        entries = _read(journal)
        if ProcessId(**entries[0]).alive() if entries else _just_made(journal):
            continue
        for entry in reversed(entries[1:]):
            if "path" in entry and Path(entry["path"]).exists():
                found.append(Leftover("path", entry["path"], journal))
            elif "process" in entry and ProcessId(**entry["process"]).alive():
                found.append(Leftover("process", str(entry["process"]["pid"]), journal))
        found.append(Leftover("journal", str(journal), journal))
    return found


def clean(directory: Path | None = None) -> list[Leftover]:
    """Remove every leftover and return what was removed."""
    removed = leftovers(directory)
    for leftover in removed:
        if leftover.kind == "process":
            with suppress(ProcessLookupError):
                os.kill(int(leftover.name), signal.SIGKILL)
        else:
            _remove(Path(leftover.name))
    return removed


def _just_made(journal: Path) -> bool:
    """Whether its owner may be about to write its first line."""
    with suppress(FileNotFoundError):
        return time.time() - journal.stat().st_mtime < _FIRST_LINE_S
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read(journal: Path) -> list[dict[str, Any]]:
    try:
        lines = journal.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:  # its run ended, or somebody else cleans too
        return []
    return [json.loads(line) for line in lines[:-1]]  # a last line without its end was never written whole


def _start_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None
    fields = text.rsplit(")", 1)[1].split()
    if fields[0] in "ZX":  # it has ended; whoever should know of it has not asked
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[_START_TIME_FIELD])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
