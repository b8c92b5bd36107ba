"""First process of a user-mode kernel: mounts file systems, runs one command, turns the kernel off.

The kernel starts it with the standard library only, as ``guest_init.py JOB``; ``emulation.exact.command`` writes the
file JOB. The guest sees the machine's files read-only, below a writable file system in memory, and the run directory,
writable, at ``RUN_DIRECTORY``. The command's output goes to files there and not to the console: virtual time would go
on while the guest waits for a slow reader of the console.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback
import tty
from pathlib import Path

RUN_DIRECTORY = "/mnt/run-directory"
PROGRESS = ".progress"  # file in the run directory: the command's standard output
CLOCK = ".clock"  # file in the run directory: one byte for each ``CLOCK_S`` of virtual time
CLOCK_S = 0.05
ROOT = "/mnt/root"
OWN = ("/dev", "/run")  # the guest has its own folders of these names, and does not see the machine's
_POWER_OFF = 0x4321FEDC  # LINUX_REBOOT_CMD_POWER_OFF


def main() -> None:
    """Run the job and turn the kernel off, whatever happens."""
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            job = json.load(file)
        _mount_root()
        _mount("hostfs", RUN_DIRECTORY, options=job["run_directory"])
        socket.sethostname("exact")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        _run(job)
    except BaseException:
        traceback.print_exc()  # now, as the process does not survive the power-off
    finally:
        sys.stderr.flush()
        os.sync()
        ctypes.CDLL(None).reboot(_POWER_OFF)


def _mount_root() -> None:
    """Make a root file system from the machine's files with a layer in memory above them, and enter it."""
    _mount("tmpfs", "/mnt")
    for name in ("upper", "work", "root"):
        Path("/mnt", name).mkdir()
    _mount("overlay", ROOT, options="lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work")
    os.chroot(ROOT)
    os.chdir("/")
    _mount("proc", "/proc")
    _mount("sysfs", "/sys")
    _mount("devtmpfs", "/dev")
    for kind, target in (("devpts", "/dev/pts"), ("tmpfs", "/dev/shm"), ("tmpfs", "/run")):
        Path(target).mkdir(exist_ok=True)
        _mount(kind, target)
    Path(RUN_DIRECTORY).mkdir(parents=True, exist_ok=True)


def _mount(kind: str, target: str, *, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", target.encode(), kind.encode(), 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {kind}: {os.strerror(ctypes.get_errno())}", target)


def _run(job: dict[str, object]) -> None:
    """Run the command. Its standard input is the console, on which the launcher asks it to stop."""
    tty.setraw(0, termios.TCSANOW)
    place = Path(RUN_DIRECTORY)
    threading.Thread(target=_show_time, args=(place / CLOCK,), daemon=True).start()
    with (place / PROGRESS).open("ab") as progress, (place / "host.log").open("ab") as log:
        os.chdir(str(job["working_directory"]))
        subprocess.run(job["command"], env=job["environment"], stdout=progress, stderr=log, check=False)  # type: ignore[call-overload]


def _show_time(clock: Path) -> None:
    """Append to the file as virtual time goes on, of which a second may take a minute of processor time."""
    with clock.open("ab", buffering=0) as file:
        while True:
            time.sleep(CLOCK_S)
            file.write(b".")


if __name__ == "__main__":
    main()
