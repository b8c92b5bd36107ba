"""The directory for what testbed keeps while it runs (journals, keys): one that only its owner can read and change.

A directory is used only after its checks: it is a real directory, it belongs to the effective user, no other user has
access, and no other user can replace it, because the same holds for every directory above it. Shared ones such as
``/tmp`` are allowed above it if they have the sticky bit.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from testbed.errors import CapabilityError

RUN = Path("/run")
# Only the machine's administrator can make these. Their owner is not compared: in a user namespace it appears unmapped.
_SYSTEM = frozenset(map(Path, ("/", "/dev", "/dev/shm", "/run", "/run/user", "/tmp", "/var", "/var/tmp")))
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CURE = (
    "testbed keeps its journals and keys there and does not use a directory that others could have changed; "
    "cure: remove it, or set XDG_RUNTIME_DIR to a directory of your own with mode 0700"
)


def runtime_directory() -> Path:
    """Return this user's directory for run-time state, which is made if it is not there.

    It is ``$XDG_RUNTIME_DIR/testbed`` if that variable names a directory that passes the checks; otherwise
    ``/run/testbed`` for root, and ``testbed-<uid>`` in the directory for temporary files for others, and for root where
    nothing can be made in ``/run``. Raise ``CapabilityError`` if the directory chosen fails its checks.
    """
    given = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if given.is_absolute() and _is_private(given):
        return private_directory(given / "testbed")
    if os.geteuid() == 0 and os.access(RUN, os.W_OK):
        return private_directory(RUN / "testbed")
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise CapabilityError(f"no directory for temporary files can be written to; {_CURE}") from error
    return private_directory(temporary / f"testbed-{os.geteuid()}")


def private_directory(path: Path) -> Path:
    """Return ``path`` without symbolic links above it; make it if it is not there, but nothing above it.

    Raise ``CapabilityError`` if it fails its checks, or cannot be made.
    """
    try:
        place = _resolved_above(path)
        reason = _fault_above(place)  # first, so that nothing is made where others decide
        if reason is None:
            with suppress(FileExistsError):
                place.mkdir(mode=0o700)
            reason = _fault_of(place)
    except (OSError, RuntimeError) as error:  # the second for a loop of symbolic links
        raise CapabilityError(f"{path}: {getattr(error, 'strerror', None) or error}; {_CURE}") from error
    if reason is not None:
        raise CapabilityError(f"{place}: {reason}; {_CURE}")
    return place


def _is_private(path: Path) -> bool:
    try:
        place = _resolved_above(path)
        return _fault_above(place) is None and _fault_of(place) is None
    except (OSError, RuntimeError):
        return False


def _resolved_above(path: Path) -> Path:
    """Return ``path`` with its parent resolved; the last component stays as it is, so that a link there is seen."""
    return path.parent.resolve(strict=True) / path.name


def _fault_of(place: Path) -> str | None:
    """Return why ``place`` itself cannot be relied on, None if it can."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "it is a symbolic link" if stat.S_ISLNK(found.st_mode) else "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid} and not to user {os.geteuid()}"
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"others have access to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def _fault_above(place: Path) -> str | None:
    """Return why another user could replace this directory, None if none can."""
    for parent in reversed(place.parents):
        found = parent.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return f"{parent} is not a directory"
        if found.st_uid not in (0, os.geteuid()) and parent not in _SYSTEM:
            return f"{parent} belongs to user {found.st_uid}, who could replace it"
        if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
            return f"others can write to {parent} (mode {stat.S_IMODE(found.st_mode):04o}) and so replace it"
    return None
