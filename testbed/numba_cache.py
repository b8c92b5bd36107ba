"""Where numba keeps the machine code of the loops that it compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from testbed.runtime_directory import private_directory, runtime_directory

T = TypeVar("T")


def compiled_by_numba(make: Callable[[], T]) -> T:
    """Return what ``make`` returns, which lets numba compile functions and keep their code.

    It is kept beside the sources, or in the user's cache; where neither can be written to, as in a container that is
    started as another user, in the run-time directory.
    """
    try:
        return make()
    except RuntimeError:  # numba has no place to keep it
        import numba

        numba.config.CACHE_DIR = str(private_directory(runtime_directory() / "numba"))
        return make()
