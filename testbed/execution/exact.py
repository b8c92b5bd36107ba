"""Exact runs: the emulation inside a user-mode kernel in virtual time.

The launcher starts the kernel instead of the host process. The kernel's first process starts the host process, which
emulates as it would outside. All clocks of the guest stand still while a program computes, and jump when all programs
wait, so neither the speed nor the load of the machine affects a result. Computing itself takes no time: a training step
takes as long as its device model says.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emulation.exact.command import JOB, Guest, exact_command, fixed_environment
from emulation.exact.guest_init import CLOCK, PROGRESS, RUN_DIRECTORY
from testbed.environment import host_environment
from testbed.errors import NoProgress
from testbed.execution.deployment import Ground
from testbed.plan.model import Plan
from testbed.processes.child import Child, spawn

KERNEL_LOG = ".kernel.log"  # output of the kernel
SPIN_LIMIT_S = 60.0  # processor time without progress of virtual time
SYSTEM_CALL_NS = 200  # virtual time of a system call, in a guest without a Plan
IDLE_LIMIT_S = 30.0  # time without use of the processor; a guest never waits, as its clock jumps to the next timer
_ALIGNED_S = 60  # longer than any start, however many system calls it makes
_ABSOLUTE = 1  # TIMER_ABSTIME
_POLL_S = 0.05
_CHECK_S = 2.0
_STUCK = (
    f"virtual time has stood still for {SPIN_LIMIT_S:g} s of processor time: a program in the guest computes, or spins,"
    " without a system call; let it wait by a system call (sched_yield suffices), or use one thread for its mathematics"
)
_DEAD = (
    f"the guest has used no processor time for {IDLE_LIMIT_S:g} s: one of its processes (uml-userspace) was killed or"
    " stopped from outside; run it again"
)


def run_jobs(ground: Ground) -> list[BaseException | None]:
    """Emulate, in the guest, from a whole minute of its clock on.

    The number of system calls of the imports depends on what the machine has compiled and cached, and each call takes
    virtual time. The wait for the minute makes the start independent of that, and takes no real time.
    """
    from testbed.execution import emulate

    ground.report({"kind": "stage", "name": "starting in virtual time", "t": 0.0})
    emulate.prepare(ground)
    import emulation.network
    import emulation.probe  # noqa: F401

    _sleep_until((int(time.monotonic()) // _ALIGNED_S + 1) * _ALIGNED_S)
    return emulate.run_jobs(ground)


def _sleep_until(monotonic_s: int) -> None:
    """Sleep until this second, exact to 1 ns; the duration that ``time.sleep`` takes would have a rounding error."""

    class Timespec(ctypes.Structure):
        _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

    at = Timespec(monotonic_s, 0)
    number = ctypes.CDLL(None).clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, ctypes.byref(at), None)
    assert number == 0, os.strerror(number)


def capabilities(plan: Plan) -> dict[str, Any]:
    """Return, for the manifest, what determines a guest's behaviour. Raise ``CapabilityError`` without a kernel."""
    from emulation.exact import kernel

    return {"kernel_build": kernel.require().to_dict(), "guest": asdict(_guest(plan)), "environment": _environment()}


def _guest(plan: Plan) -> Guest:
    assert plan.exact is not None
    return Guest(plan.seed, round(plan.exact.system_call_s * 1e9), plan.exact.memory_bytes)


def _environment() -> dict[str, str]:
    return host_environment(fixed_environment(os.environ))


def start(plan: Plan, directory: Path) -> Child:
    """Start the kernel with the host process in it. Raise ``CapabilityError`` if kernel or memory is missing."""
    from emulation.sandbox import sandbox_command

    # -P: Python would list a working directory on the module path, so its content would affect memory and system calls
    host = sandbox_command([sys.executable, "-P", "-m", "testbed.execution.host", RUN_DIRECTORY], rootless=False)
    return _start_kernel(_guest(plan), directory, host)


def run_command(command: Sequence[str], directory: Path, memory_bytes: int) -> str:
    """Run a command in a guest, which sees ``directory`` as ``RUN_DIRECTORY``; return everything that it printed.

    No watchdog checks that virtual time goes on, as the command may compute for minutes.
    """
    kernel_process = _start_kernel(Guest(1, SYSTEM_CALL_NS, memory_bytes), directory, command)
    try:
        kernel_process.wait()
    finally:  # also after an interrupt: the guest has its own session, and would go on writing to ``directory``
        kernel_process.kill_group()
        kernel_process.close()
    return (directory / PROGRESS).read_text() + (directory / "host.log").read_text()


def _start_kernel(guest: Guest, directory: Path, command: Sequence[str]) -> Child:
    from emulation.exact import kernel

    started, outer = exact_command(kernel.require(), guest, directory, command, _environment())
    (directory / PROGRESS).write_bytes(b"")
    with (directory / KERNEL_LOG).open("wb") as log:
        return spawn(
            started, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True, env=outer
        )


class Lines:
    """Yields each of the host process's lines of progress once, as it is written, until the kernel has ended.

    A file carries the lines, and not a pipe: a guest that waited for the launcher would wait in virtual time. Raises
    ``NoProgress`` when virtual time stands still (``Watchdog``).
    """

    def __init__(self, host: Child, directory: Path) -> None:
        self._host = host
        self._directory = directory
        self._taken_bytes = 0  # kept between iterations: after Ctrl-C, the next iteration continues here

    def __iter__(self) -> Iterator[str]:
        here = json.dumps(str(self._directory))[1:-1]  # messages name the run directory as the guest sees it
        ticks = 0
        watchdog = Watchdog(self._host.pid)
        with (self._directory / PROGRESS).open("rb") as file:
            while True:
                ended = self._host.wait(0.0) is not None
                file.seek(self._taken_bytes)
                *whole, _ = file.read().split(b"\n")
                for line in whole:
                    self._taken_bytes += len(line) + 1
                    yield line.decode().replace(RUN_DIRECTORY, here)
                if ended and not whole:
                    return
                ticks, before = _ticks(self._directory), ticks
                watchdog.check(progress=ticks != before)
                time.sleep(_POLL_S)


class Watchdog:
    """Raises ``NoProgress`` when the virtual time of a guest stands still.

    Then its processes use either ``SPIN_LIMIT_S`` of processor time without progress, or none at all for
    ``IDLE_LIMIT_S``. ``session``: the id of their session.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._next_s = self._alive_s = time.monotonic()
        self._used_s = 0.0  # processor time at the last look
        self._progress_s: float | None = None  # processor time at the first look after the last progress

    def check(self, progress: bool) -> None:
        """Look at processor time every ``_CHECK_S``; ``progress``: whether virtual time went on since the last call."""
        if progress:
            self._progress_s = None
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s, before_s, self._used_s = now_s + _CHECK_S, self._used_s, processor_s(self._session)
        if self._used_s != before_s:
            self._alive_s = now_s
        elif now_s - self._alive_s > IDLE_LIMIT_S:
            raise NoProgress(_DEAD)
        if self._progress_s is None:
            self._progress_s = self._used_s
        elif self._used_s - self._progress_s > SPIN_LIMIT_S:
            raise NoProgress(_STUCK)


def _ticks(directory: Path) -> int:
    """Return how often the guest has reported that its virtual time goes on."""
    try:
        return (directory / CLOCK).stat().st_size
    except FileNotFoundError:
        return 0  # it starts


def processor_s(session: int) -> float:
    """Return the processor time that the running processes of a session have used, in s."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()  # a name may be cut within a character
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def close(directory: Path, status: str) -> None:
    """Remove files used only by kernel and launcher. After a failure, append the kernel's log to ``host.log``."""
    if status == "failed" and (directory / KERNEL_LOG).exists():
        with (directory / "host.log").open("ab") as log:
            log.write((directory / KERNEL_LOG).read_bytes())
    for name in (PROGRESS, CLOCK, KERNEL_LOG, JOB):
        (directory / name).unlink(missing_ok=True)
