"""Chooses the folder in which numba caches the machine code of compiled loops."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from testbed.errors import CapabilityError

T = TypeVar("T")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def compiled_by_numba(make: Callable[[], T]) -> T:
    """Call ``make``, which lets numba compile functions and cache their code, and return its result.

    The cache is beside the sources or in the user's cache folder. If neither is writable, as in a container that runs
    as another user, it is in a folder for temporary files.
    """
    try:
        return make()
    except RuntimeError:  # numba has no place to keep it
        import numba

        numba.config.CACHE_DIR = str(own_folder())
        return make()


def own_folder() -> Path:
    """Return this user's folder among temporary files, and make it if necessary.

    As code in it is executed, raise ``CapabilityError`` if another user could have put it there.
    """
    place = Path(tempfile.gettempdir(), f"testbed-{os.geteuid()}")
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise CapabilityError(
            f"{place}: compiled code is kept there, which others could have changed; cure: remove it, or set "
            "NUMBA_CACHE_DIR to a directory of your own"
        )
    return place
