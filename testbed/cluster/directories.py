"""Temporary directories on the machines of a cluster that are removed however their process ends."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.processes.child import spawn

# Waits until the process ends, which closes the pipe. Removes the directory, and again 5 s later, as processes that the
# first one has started may write until they end, too.
_REMOVE_AFTERWARDS = 'read _; test -e "$1" || exit; sleep 1; rm -rf "$1"; sleep 5; exec rm -rf "$1"'


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """Make a directory and remove it at the end; if this process is killed, another process removes it.

    The other process is not a child of this one, as Ray kills the children of its workers.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix))
    command = ["setsid", "--fork", "sh", "-c", _REMOVE_AFTERWARDS, "sh", str(path)]
    nothing = subprocess.DEVNULL
    remover = spawn(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
    remover.wait()  # setsid has forked the other process
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        remover.close()  # closes the pipe, too
