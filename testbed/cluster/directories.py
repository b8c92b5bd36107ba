"""Directories of agents, for the files of their nodes until these have been sent to the driver.

An agent removes its directory at its end. However it ends, a process of its own does so when the agent and all
of its nodes have ended: Ray kills the children of a worker that exits, agents among them, by SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

_PREFIX = "testbed-agent-"
_REMOVAL_S = 5.0


def new_directory() -> Path:
    """Return a new directory, which is removed when this process and all that it has forked have ended."""
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
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


def remove(path: Path) -> None:
    """Remove a directory in which processes that are about to die may still write."""
    deadline_s = time.monotonic() + _REMOVAL_S
    while path.exists():
        shutil.rmtree(path, ignore_errors=time.monotonic() < deadline_s)
