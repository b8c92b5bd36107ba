"""A process, told apart from a later one with the same number."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import msgspec

from testbed.results.owner import boot_id, start_ticks


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process of this machine: its number, its start in clock ticks since boot, and the boot."""

    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Return the process that has this number now. Raise ``ProcessLookupError`` if there is none."""
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, ticks, boot_id())

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        try:
            return ProcessId.of(self.pid) == self
        except ProcessLookupError:
            return False

    def ours(self) -> bool:
        """Return whether it runs, and with no other user's rights than those of the calling process."""
        return self.alive() and _users(self.pid) == {os.geteuid()}

    def kill(self) -> None:
        """End it at once if it is ``ours`` and neither the calling process nor the first one.

        Raise ``OSError`` if the kernel does not let us.
        """
        if self.pid in (1, os.getpid()):
            return
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The descriptor stays with one process: if the checks pass, the signal cannot reach another.
            if self.ours():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)


def _users(pid: int) -> set[int]:
    """Return the users whose rights a process has: real, effective, saved, of the file system. Empty if it has ended.

    The owner of ``/proc/<pid>`` would not do: it is root for a process that cannot be dumped.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return set()
    return {int(word) for line in lines if line.startswith("Uid:") for word in line.split()[1:]}
