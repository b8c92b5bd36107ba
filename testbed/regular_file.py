"""Reads files of strangers, and refuses FIFOs, which would wait for a writer, and devices, which never end."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO


def read_regular(path: Path, limit_bytes: int | None = None) -> bytes:
    """Return the content of a regular file. Raise ``OSError`` if it is not one, or is larger than ``limit_bytes``."""
    with open(path, "rb", opener=_at_once) as file:
        size_bytes = _size_bytes(file, path)
        if limit_bytes is not None and size_bytes > limit_bytes:
            raise OSError(errno.EFBIG, f"file is {size_bytes} bytes, limit is {limit_bytes}", str(path))
        return file.read()


def copy_regular(path: Path, copy: Path) -> None:
    """Copy the content of a regular file. Raise ``OSError`` for anything else."""
    with open(path, "rb", opener=_at_once) as file:
        _size_bytes(file, path)
        with copy.open("xb") as target:
            shutil.copyfileobj(file, target)


def _size_bytes(file: BinaryIO, path: Path) -> int:
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a regular file (copy its content into one)", str(path))
    return about.st_size


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
