"""First process of a sandbox (PID 1 inside): prepares it, starts the command, reaps orphans, ends with the launcher.

Run by its file name, with the standard library only, as it must start within milliseconds.
Usage: ``sandbox_init.py [--lifeline FD] -- COMMAND…``. Ends with the command's exit status, 128 + n after signal n.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from pathlib import Path

_MOUNT_OPTIONS = 2 | 4  # nosuid, nodev
_SHARED_MEMORY = "mode=1777,size=50%"  # of the machine's memory, as the system's own; see tmpfs(5)


def main() -> int:
    arguments = sys.argv[1:]
    split = arguments.index("--")
    lifeline = int(arguments[1]) if split else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    wakeup, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write)
    mount_own()
    child = _start(arguments[split + 1 :], lifeline)
    return _supervise(child, wakeup, lifeline)


def mount_own() -> None:
    """Give the calling process' namespaces directories of their own."""
    _mount("tmpfs", "/run")  # a place of our own for sockets and locks, without root as well
    Path("/run/testbed").mkdir(mode=0o700)  # as testbed.runtime_directory wants it
    Path("/run/testbed/sandbox").write_text("")
    Path("/run/lock").mkdir()
    Path("/run/netns").mkdir()
    if Path("/dev/shm").is_dir():
        _mount("tmpfs", "/dev/shm", _SHARED_MEMORY)
    _mount("sysfs", "/sys")  # so that /sys/class/net shows this namespace


def _mount(kind: str, target: str, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(kind.encode(), target.encode(), kind.encode(), _MOUNT_OPTIONS, options.encode()):
        number = ctypes.get_errno()
        if kind == "tmpfs":
            raise OSError(number, f"cannot mount {kind} on {target}: {os.strerror(number)}")


def _start(argv: list[str], lifeline: int | None) -> int:
    child = os.fork()
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        if lifeline is not None:
            os.close(lifeline)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        # an ordinary user's path lacks the places of ip, tc and iptables
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a command's own error
    finally:
        os._exit(127)


def _supervise(child: int, wakeup: int, lifeline: int | None) -> int:
    """Pass signals on, reap, and return when the command has ended or the launcher has."""
    watched = [wakeup] if lifeline is None else [wakeup, lifeline]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if lifeline in ready:
            return 128 + signal.SIGKILL  # end of file: the launcher is gone; the kernel ends everything that is left
        if wakeup in ready:
            for number in os.read(wakeup, 256):
                if number in (signal.SIGINT, signal.SIGTERM):
                    os.kill(child, number)
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> int | None:
    """Collect every ended process; the command's exit status if it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 128 + signal.SIGKILL
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
