"""Processor time of a command and of all that it starts, exactly, and by kind of process, by the kernel's accounts.

A control group adds up what its processes use, whatever becomes of them. Which kind of process has used it is read from
``/proc`` several times a second; of processes that are too short for that, the kind of their parent is known.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.2
_REST = "others, and the short ones"


class ProcessorAccount:
    """A group of processes. What a thread starts within ``joined`` is in it, and stays there."""

    def __init__(self, name: str) -> None:
        self._root = _mounted()
        self._path = self._root / f"testbed-{name}-{os.getpid()}"
        self._path.mkdir()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Let this process be in the group for a while."""
        self._path.joinpath("cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            self._root.joinpath("cgroup.procs").write_text(str(os.getpid()))

    def used_s(self) -> float:
        """Return the processor time of all processes of the group so far, in seconds."""
        fields = dict(line.split() for line in self._path.joinpath("cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def processes(self) -> list[int]:
        """Return the numbers of its processes."""
        return [int(line) for line in self._path.joinpath("cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """Remove the group, whose processes have ended."""
        self._path.rmdir()


@contextmanager
def control_group(name: str) -> Iterator[ProcessorAccount]:
    """Make a control group; remove it at the end."""
    group = ProcessorAccount(name)
    try:
        yield group
    finally:
        group.remove()


def _mounted() -> Path:
    """Return where the kernel's second version of control groups is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise SystemExit("no control groups (cgroup2) are mounted")


class KindMeter:
    """Adds up what a group uses from now on, by the first word of ``kinds`` that a process's command contains.

    A process of the kind ``forking`` leads a session and waits for what it has forked, whose time it then accounts for.
    """

    def __init__(self, group: ProcessorAccount, kinds: Mapping[str, str], forking: str) -> None:
        self._group, self._kinds, self._forking = group, kinds, forking
        self._kind_of, self._now, self._before = dict[int, str](), dict[int, float](), dict[int, float]()
        self._look()
        self._before, self._total_s = dict(self._now), group.used_s()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> Counter[str]:
        """Return the seconds by kind of process; they add up to what the group has used."""
        self._over.set()
        self._thread.join()
        total_s, used = self._group.used_s() - self._total_s, Counter[str]()
        for pid, used_s in self._now.items():
            used[self._kind_of[pid]] += used_s - self._before.get(pid, 0.0)
        used[_REST] += total_s - used.total()
        return used

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for pid in self._group.processes():
            with suppress(OSError):
                place = Path(f"/proc/{pid}")
                command = place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                kind = next((kind for word, kind in self._kinds.items() if word in command), _REST)
                fields = place.joinpath("stat").read_text().rpartition(")")[2].split()
                if kind != self._forking:
                    self._add(pid, kind, fields[11:13])
                elif int(fields[3]) == pid:
                    self._add(pid, kind, fields[11:15])

    def _add(self, pid: int, kind: str, ticks: Sequence[str]) -> None:
        self._kind_of[pid], self._now[pid] = kind, sum(map(int, ticks)) * _TICK_S
