"""Directories of agents, for the files of their nodes until these have been sent to the driver.

An agent holds a lock on its directory, and removes it at its end. If it is killed, what has started it removes it; if
that is killed as well, the next agent on the machine does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "testbed-agent-"
_NEW_S = 60.0  # a directory that is younger may not have been locked yet
_REMOVAL_S = 5.0


def new_directory() -> Path:
    """Return a new, locked directory of this process; remove those of agents that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_stale(path)
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)  # held by this process and its nodes until the last ends
    return path


def _remove_stale(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another user's, or gone
        return
    try:
        about = os.fstat(descriptor)
        if about.st_uid == os.geteuid() and time.time() - about.st_mtime > _NEW_S:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:  # its agent lives
        pass
    finally:
        os.close(descriptor)


def remove_directories(pid: int) -> None:
    """Remove the directory of the agent ``pid``, a child of this process that has ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{pid}-*"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a directory in which processes that are about to die may still write."""
    deadline_s = time.monotonic() + _REMOVAL_S
    while path.exists():
        shutil.rmtree(path, ignore_errors=time.monotonic() < deadline_s)
