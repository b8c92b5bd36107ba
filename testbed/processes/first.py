"""The process around a command: it starts the command, passes signals on, reaps processes, and kills what is left.

It is run by its file name, with the standard library only, as it must start within milliseconds:
``first.py [--lifeline FD] [--grace SECONDS] [--sandbox] -- COMMAND…``.

lifeline  read end of a pipe; at end of file, all processes are killed at once
grace     seconds between SIGTERM, which is passed on to the command, and SIGKILL; SIGINT is then not passed on
sandbox   this is the first process (PID 1) of new namespaces, and prepares them. When it ends, the kernel kills all
          other processes there. Without it, the command gets its own session, and this process kills what it leaves

The process ends with the command's exit status, or by the same signal; in a sandbox, with 128 + n after signal n.
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
_NOT_STARTED = 127  # exit status for a command that cannot be started, as of a shell
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_MOUNT_OPTIONS = 2 | 4  # nosuid, nodev
_SHARED_MEMORY = "mode=1777,size=50%"  # half of the machine's memory, as for the system's own; see tmpfs(5)

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
        # the path of an ordinary user lacks the directories of ip, tc and iptables
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    else:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphaned descendants become children of this process
    child = _start(command, lifeline, own_session=not in_sandbox)
    status = _supervise(child, wakeup, lifeline, grace_s)
    if in_sandbox:
        return status if status >= 0 else 128 - status
    kill_descendants()
    return status


def mount_own() -> None:
    """Mount own /run, /dev/shm and /sys in the namespaces of the calling process."""
    _mount("tmpfs", "/run")  # for sockets and locks, also without root
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
    """Return the process ids of all descendants of the process ``ancestor``."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # the process has ended meanwhile
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
    """Send a signal to all descendants of the process ``ancestor``; return whether there are any."""
    found = descendants(ancestor)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(found)


def kill_descendants() -> None:
    """Kill all descendants of this process, and wait until they have ended."""
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
        # If the parent is killed, the kernel kills the command. It does so when the thread that has forked ends; the
        # parent has only this thread.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended between fork and prctl
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
    """Wait for the command; return its exit status, or minus the signal that ended it."""
    kill_at_s: float | None = None
    while True:
        left_s = None if kill_at_s is None else max(0.0, kill_at_s - time.monotonic())
        ready, _, _ = select.select([wakeup] if lifeline is None else [wakeup, lifeline], [], [], left_s)
        if lifeline in ready or left_s == 0.0:
            return -signal.SIGKILL
        for number in os.read(wakeup, 256) if wakeup in ready else b"":
            if number not in _PASSED_ON or (number == signal.SIGINT and grace_s is not None):
                continue  # Ctrl-C on a user's program is handled by its launcher
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
    """End this process by the signal that ended the command, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    ended_with = main(sys.argv[1:])
    if ended_with < 0:
        _end_by(-ended_with)
    sys.exit(ended_with)
