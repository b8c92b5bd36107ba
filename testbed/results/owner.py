"""Who owns a file or a run: a process, recognised by boot, id and start time (an id alone is used again)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """A process of this machine. ``start_ticks`` is field 22 of ``/proc/PID/stat``; see proc(5)."""

    pid: int
    start_ticks: int
    boot_id: str

    def alive(self) -> bool:
        """Whether that very process still runs, here, since the same boot."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def current() -> ProcessOwner:
    """The calling process."""
    pid = os.getpid()
    return ProcessOwner(pid, start_ticks(pid) or 0, boot_id())


def boot_id() -> str:
    """Changes at every boot; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Clock ticks between boot and the start of process ``pid``; ``None`` if there is none, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the command, in parentheses, may itself hold spaces and parentheses
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
