"""The kernel's counts of processes that it killed for want of memory. They tell who killed a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# files in which a control group counts these kills, by the group's controllers: version 2, version 1
_MEMORY_GROUPS = {
    "": "/sys/fs/cgroup{}/memory.events",
    "memory": "/sys/fs/cgroup/memory{}/memory.oom_control",
}


@dataclass(frozen=True, slots=True)
class OomKills:
    """Numbers of processes that the kernel has killed for want of memory; ``None`` if the kernel does not state them.

    group    in the control group of this process
    machine  on the whole machine
    """

    group: int | None
    machine: int | None

    @classmethod
    def now(cls) -> OomKills:
        return cls(_of_our_group(), _oom_kill("/proc/vmstat"))

    def killer(self) -> str:
        """Return who sent SIGKILL to a process after these counts were taken; empty if the kernel does not tell."""
        now = OomKills.now()
        if _more(now.group, self.group):
            return "by the kernel, for want of memory"
        if _more(now.machine, self.machine):
            return "while the kernel killed for want of memory"
        return "by itself or another process" if None not in (now.machine, self.machine) else ""


def _more(now: int | None, before: int | None) -> bool:
    return now is not None and before is not None and now > before


def _of_our_group() -> int | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, group = line.split(":", 2)
        file = _MEMORY_GROUPS.get(controllers, "")
        if file and (count := _oom_kill(file.format(group.rstrip("/")))) is not None:
            return count
    return None


def _oom_kill(file: str) -> int | None:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
