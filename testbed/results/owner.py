"""Whose a run directory is: below ``sudo``, the user's who called it, and no longer root's once the run has ended."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from testbed.units import parse_whole


def caller() -> tuple[int, int] | None:
    """Return user and group that called ``sudo``; ``None`` if this process is not root by it."""
    if os.geteuid() != 0:
        return None
    try:
        user, group = (parse_whole(os.environ[name]) for name in ("SUDO_UID", "SUDO_GID"))
    except (KeyError, ValueError):
        return None
    return (user, group) if user > 0 and group > 0 else None


def give(directories: Iterable[Path]) -> None:
    """Give directories that this process has made, and hold nothing yet, to the user who called ``sudo``."""
    if (to := caller()) is not None:
        for path in directories:
            os.chown(path, *to, follow_symlinks=False)


def give_all(directory: Path) -> None:
    """Give a directory, and all below it that is root's, to the user who called ``sudo``.

    No symbolic link is followed, and no file is given away that has another name elsewhere.
    """
    if (to := caller()) is None:
        return
    for _, folders, files, descriptor in os.fwalk(directory, topdown=False, follow_symlinks=False):
        for name in (*folders, *files):
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if about.st_uid == 0 and (stat.S_ISDIR(about.st_mode) or about.st_nlink == 1):
                os.chown(name, *to, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, *to, follow_symlinks=False)
