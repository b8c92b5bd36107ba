"""The process around one program: passes signals on, and lets nothing that the program has started outlive it.

Run by its file name, with the standard library only, as it must start within milliseconds:
``guard.py LIFELINE GRACE_S COMMAND…``. LIFELINE is the read end of a pipe whose end of file kills everything at
once; SIGTERM goes to the program, and what is left of it after GRACE_S is killed. Ends as the
program does: with its exit status, or by the same signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127  # as a shell's, for a command that cannot be started
_LISTENED_TO = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT)

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the program to its end; return its status, negative after a signal."""
    lifeline, grace_s, *command = sys.argv[1:]
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # descendants whose parent has ended become children of this
    wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in _LISTENED_TO:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write)
    child = _start(command, int(lifeline))
    status = _supervise(child, wakeup, int(lifeline), float(grace_s))
    kill_descendants(os.getpid())
    return status


def descendants(ancestor: int) -> list[int]:
    """Return the process ids of all that ``ancestor`` has started, and of what these have."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stat = (entry / "stat").read_bytes()  # the kernel may cut a name within a character
                children[int(stat.rpartition(b")")[2].split()[1])].append(int(entry.name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        own = children[waiting.pop()]
        found += own
        waiting += own
    return found


def kill_descendants(ancestor: int) -> None:
    """Kill all that ``ancestor``, which is this process, has started, and wait for it."""
    while left := descendants(ancestor):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while _reap_one():
            pass
        time.sleep(0.002)


def _start(command: list[str], lifeline: int) -> int:
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        # Should the guard itself be killed, the program ends with it. The signal follows the thread that has forked,
        # and this is the guard's only one.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # it ended between fork and prctl
            os._exit(_NOT_STARTED)
        signal.set_wakeup_fd(-1)
        os.close(lifeline)
        for number in _LISTENED_TO:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - the program's log
    finally:
        os._exit(_NOT_STARTED)


def _supervise(child: int, wakeup: int, lifeline: int, grace_s: float) -> int:
    """Return the program's status, minus the signal that ended it."""
    kill_at_s: float | None = None
    while True:
        left_s = None if kill_at_s is None else max(0.0, kill_at_s - time.monotonic())
        ready, _, _ = select.select([wakeup, lifeline], [], [], left_s)
        if lifeline in ready or left_s == 0.0:
            kill_descendants(os.getpid())
            return -signal.SIGKILL
        if wakeup in ready and signal.SIGTERM in os.read(wakeup, 256):
            kill_at_s = kill_at_s or time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        while ended := _reap_one():
            if ended[0] == child:
                return os.waitstatus_to_exitcode(ended[1])


def _reap_one() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _end_by(number: int) -> None:
    """End by the same signal as the program, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    ended_with = main()
    if ended_with < 0:
        _end_by(-ended_with)
    sys.exit(ended_with)
