"""Where numba keeps the machine code of the loops that it compiles."""

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
    """Return what ``make`` returns, which lets numba compile functions and keep their code.

    It is kept beside the sources, or in the user's cache; where neither can be written to, as in a container that is
    started as another user, among temporary files.
    """
    try:
        return make()
    except RuntimeError:  # numba has no place to keep it
        import numba

        numba.config.CACHE_DIR = str(own_folder())
        return make()


def own_folder() -> Path:
    """Return this user's folder among temporary files, which is made if it is not there.

    What lies in it is executed. Raise ``CapabilityError`` if another user could have put it there.
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
