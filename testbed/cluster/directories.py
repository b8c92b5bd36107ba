"""Directories of processes on the machines of a cluster, for files until these have been sent to the driver.

A process removes its directory at its end. If it is killed, as Ray kills the children of a worker that exits, another
process does so, which was forked for that, when all that may write there have ended; and if that is killed as well, the
next process of this kind on the machine does.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from testbed.process_id import ProcessId, start_ticks

_REMOVAL_S = 5.0
_NAME = re.compile(r".*-(\d+)-(\d+)")


def new_directory(kind: str) -> Path:
    """Return a new directory, which is removed when this process and all that it has forked have ended.

    Remove those of the same ``kind`` of dead processes of this user.
    """
    root, me = Path(tempfile.gettempdir()), ProcessId.current()
    for other in root.glob(f"{kind}-*"):
        _remove_stale(other)
    path = root / f"{kind}-{me.pid}-{me.start_ticks}"
    path.mkdir(mode=0o700)
    lifeline, held = os.pipe()  # ``held`` is open in this process and its nodes, and never closed
    if os.fork() == 0:
        try:
            _remove_at_end_of(lifeline, held, path)
        finally:
            os._exit(0)
    os.close(lifeline)
    return path


def _remove_at_end_of(lifeline: int, held: int, path: Path) -> None:
    os.setsid()  # no signal to the agent's group reaches this process
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.dup2(lifeline, 3)
    os.closerange(4, max(lifeline, held, os.sysconf("SC_OPEN_MAX")))
    os.read(3, 1)  # nothing is ever written
    remove(path)


def _remove_stale(path: Path) -> None:
    match = _NAME.fullmatch(path.name)
    with suppress(OSError):
        if match and path.lstat().st_uid == os.geteuid() and start_ticks(int(match[1])) != int(match[2]):
            shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a directory in which processes that are about to die may still write."""
    deadline_s = time.monotonic() + _REMOVAL_S
    while path.exists():
        shutil.rmtree(path, ignore_errors=time.monotonic() < deadline_s)
