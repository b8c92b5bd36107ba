"""The owner of a file or run: a process, identified by boot, number and start time (a number alone is reused)."""

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
        """Return whether this very process still runs on this machine."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def current() -> ProcessOwner:
    """Return the calling process."""
    pid = os.getpid()
    return ProcessOwner(pid, start_ticks(pid) or 0, boot_id())


def boot_id() -> str:
    """Return the kernel's identifier of this boot; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return clock ticks from boot to the start of process ``pid``; ``None`` if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the command, in parentheses, may contain spaces and parentheses
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
