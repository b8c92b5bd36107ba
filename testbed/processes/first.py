"""The process around a command: starts it, passes signals on, reaps, and lets nothing outlive the command or us.

Run by its file name, with the standard library only, as it must start within milliseconds:
``first.py [--lifeline FD] [--grace SECONDS] [--sandbox] -- COMMAND…``.

lifeline  read end of a pipe; at its end of file everything is killed at once
grace     after SIGTERM, which goes to the command, what is left of it after so long is killed. The command is in a
          session of its own, and what it leaves running is killed; this process ends by the same signal as it does
sandbox   this is the first process (PID 1) of new namespaces, and prepares them; the kernel ends with it what is left

It ends with the command's exit status; in a sandbox with 128 + n after signal n.
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

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127  # as a shell's, for a command that cannot be started
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_MOUNT_OPTIONS = 2 | 4  # nosuid, nodev
_SHARED_MEMORY = "mode=1777,size=50%"  # of the machine's memory, as the system's own; see tmpfs(5)

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Run the command to its end; return its status, negative after a signal."""
    split = arguments.index("--")
    options = arguments[:split]
    command = arguments[split + 1 :]
    in_sandbox = "--sandbox" in options
    lifeline = int(options[options.index("--lifeline") + 1]) if "--lifeline" in options else None
    grace_s = float(options[options.index("--grace") + 1]) if "--grace" in options else None
    wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (*_PASSED_ON, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write)
    if in_sandbox:
        mount_own()
        # an ordinary user's path lacks the places of ip, tc and iptables
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    else:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what loses its parent becomes a child of this
    child = _start(command, lifeline, own_session=not in_sandbox)
    status = _supervise(child, wakeup, lifeline, grace_s)
    if in_sandbox:
        return status if status >= 0 else 128 - status
    kill_descendants()
    return status


def mount_own() -> None:
    """Give the calling process' namespaces directories of their own."""
    _mount("tmpfs", "/run")  # a place of our own for sockets and locks, without root as well
    Path("/run/testbed").mkdir()
    Path("/run/testbed/sandbox").write_text("")
    Path("/run/lock").mkdir()
    Path("/run/netns").mkdir()
    if Path("/dev/shm").is_dir():
        _mount("tmpfs", "/dev/shm", _SHARED_MEMORY)
    _mount("sysfs", "/sys")  # so that /sys/class/net shows this namespace


def _mount(kind: str, target: str, options: str = "") -> None:
    if _libc.mount(kind.encode(), target.encode(), kind.encode(), _MOUNT_OPTIONS, options.encode()):
        number = ctypes.get_errno()
        if kind == "tmpfs":
            raise OSError(number, f"cannot mount {kind} on {target}: {os.strerror(number)}")


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


def signal_descendants(ancestor: int, number: signal.Signals) -> bool:
    """Send a signal to all that ``ancestor`` has started; return whether there is any."""
    found = descendants(ancestor)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(found)


def kill_descendants() -> None:
    """Kill all that this process has started, and wait for it."""
    while signal_descendants(os.getpid(), signal.SIGKILL):
        while _reap_one():
            pass
        time.sleep(0.002)


def _start(command: list[str], lifeline: int | None, *, own_session: bool) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        # Should this process itself be killed, the command ends with it. The signal follows the thread that has forked,
        # and this is its only one.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended between fork and prctl
            os._exit(_NOT_STARTED)
        signal.set_wakeup_fd(-1)
        if lifeline is not None:
            os.close(lifeline)
        for number in (*_PASSED_ON, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if own_session:
            os.setsid()
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - the command's log
    finally:
        os._exit(_NOT_STARTED)


def _supervise(child: int, wakeup: int, lifeline: int | None, grace_s: float | None) -> int:
    """Return the command's status, minus the signal that ended it."""
    kill_at_s: float | None = None
    while True:
        left_s = None if kill_at_s is None else max(0.0, kill_at_s - time.monotonic())
        ready, _, _ = select.select([wakeup] if lifeline is None else [wakeup, lifeline], [], [], left_s)
        if lifeline in ready or left_s == 0.0:
            return -signal.SIGKILL
        for number in os.read(wakeup, 256) if wakeup in ready else b"":
            if number not in _PASSED_ON or (number == signal.SIGINT and grace_s is not None):
                continue  # Ctrl-C of a user's program is its launcher's
            if grace_s is not None:
                kill_at_s = kill_at_s or time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
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
    """End by the same signal as the command, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    ended_with = main(sys.argv[1:])
    if ended_with < 0:
        _end_by(-ended_with)
    sys.exit(ended_with)
