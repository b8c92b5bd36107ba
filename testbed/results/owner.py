"""Owners of run directories: a directory made under ``sudo`` is given to the user who called ``sudo``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from testbed.units import parse_whole


def caller() -> tuple[int, int] | None:
    """Return the user and group that called ``sudo``; ``None`` if this process does not run as root under ``sudo``."""
    if os.geteuid() != 0:
        return None
    try:
        user, group = (parse_whole(os.environ[name]) for name in ("SUDO_UID", "SUDO_GID"))
    except (KeyError, ValueError):
        return None
    return (user, group) if user > 0 and group > 0 else None


def give(directories: Iterable[Path]) -> None:
    """Give new, empty directories of this process to the user who called ``sudo``."""
    if (to := caller()) is not None:
        for path in directories:
            os.chown(path, *to, follow_symlinks=False)


def give_all(directory: Path) -> None:
    """Give a directory, and everything below it that root owns, to the user who called ``sudo``. Call it after a run.

    Symbolic links are not followed, and files with further hard links keep their owner.
    """
    if (to := caller()) is None:
        return
    for _, folders, files, descriptor in os.fwalk(directory, topdown=False, follow_symlinks=False):
        for name in (*folders, *files):
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if about.st_uid == 0 and (stat.S_ISDIR(about.st_mode) or about.st_nlink == 1):
                os.chown(name, *to, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, *to, follow_symlinks=False)
