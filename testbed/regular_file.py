"""Read files that anybody may have made: a FIFO would wait for a writer, a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, limit_bytes: int | None = None) -> bytes:
    """Return the content of a regular file. Raise ``OSError`` for anything else, and above ``limit_bytes``."""
    with open(path, "rb", opener=_at_once) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file (copy its content into one)", str(path))
        if limit_bytes is not None and about.st_size > limit_bytes:
            raise OSError(errno.EFBIG, f"file is {about.st_size} bytes, limit is {limit_bytes}", str(path))
        return file.read()


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
