"""Temporary directories on the machines of a cluster, which are removed however their process ends."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.processes.child import spawn

# Until the process ends, its pipe stays open; those that it has started, and that may still write, end with it.
_REMOVE_AFTERWARDS = 'read _; test -e "$1" || exit; sleep 1; rm -rf "$1"; sleep 5; exec rm -rf "$1"'


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """Make a directory and remove it at the end; if this process is killed, another one removes it.

    That is no child of this process: Ray kills the children of its workers.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix))
    command = ["setsid", "--fork", "sh", "-c", _REMOVE_AFTERWARDS, "sh", str(path)]
    nothing = subprocess.DEVNULL
    remover = spawn(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
    remover.wait()  # it has started the other one
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        remover.close()  # and with it the pipe
