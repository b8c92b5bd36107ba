"""Identities of processes, which tell a process apart from later ones with the same number.

A ``ProcessId`` is the owner of a file, a ``RunOwner`` that of a run, which other machines may see, too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from pathlib import Path
from typing import Annotated

import msgspec


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process: its number, its start in clock ticks since boot (field 22 of ``/proc/PID/stat``), and the boot."""

    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    start_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> ProcessId:
        """Return the calling process; its start is 0 where there is no ``/proc``."""
        pid = os.getpid()
        return cls(pid, start_ticks(pid) or 0, boot_id())

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


class RunOwner(ProcessId, frozen=True, forbid_unknown_fields=True):
    """The owner of a run directory. Other machines and containers may see it; there, its number is another process.

    space    the space of process numbers to which the number belongs (``pid_space``); empty in earlier releases
    host     name of the process's machine
    machine  digest of ``host`` and of the machine's id; empty if it has no id
    """

    space: str = ""
    host: str = ""
    machine: str = ""

    @classmethod
    def current(cls) -> RunOwner:
        me = ProcessId.current()
        return cls(me.pid, me.start_ticks, me.boot_id, pid_space(), platform.node(), _machine())

    def elsewhere(self) -> bool:
        """Return whether the process runs on another machine or in another container, so its state is unknown here.

        The result is false if this machine has been restarted since, as the process has then ended.
        """
        ended_with_boot = self.machine != "" and self.machine == _machine() and self.boot_id != boot_id()
        return self.space not in ("", pid_space()) and not ended_with_boot


def _machine() -> str:
    """Return a digest, as the id itself is not for publication (machine-id(5))."""
    try:
        number = Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
    known = re.fullmatch("[0-9a-f]{32}", number)
    return hashlib.sha256(f"{platform.node()} {number}".encode()).hexdigest()[:8] if known else ""


def age_s() -> float:
    """Return the age of this process, including the start of its interpreter; 0 if there is no ``/proc``."""
    ticks = start_ticks(os.getpid())
    return 0.0 if ticks is None else time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """Return the kernel's identifier of this boot; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_space() -> str:
    """Return eight hexadecimal digits for this boot and process namespace, within which process ids are unique."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return hashlib.sha256(f"{boot_id()} {namespace}".encode()).hexdigest()[:8]


def start_ticks(pid: int) -> int | None:
    """Return clock ticks from boot to the start of process ``pid``; ``None`` if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the command, in parentheses, may contain spaces and parentheses, and the kernel may cut it within a character
    state, *fields = stat.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else int(fields[18])
