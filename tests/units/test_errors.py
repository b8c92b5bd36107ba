"""What errors of the operating system mean for a user."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from testbed.errors import CapabilityError, ScenarioError, of_os
from tests.for_each import for_each


@for_each(
    ("number", "words"),
    [
        (errno.EMFILE, "too many open files: raise .*`ulimit -n`.*fewer nodes"),
        (errno.ENFILE, "too many open files in system: raise .*fs.file-max.*fewer nodes"),
        (errno.EFBIG, "file too large: raise .*ulimit -f"),
        (errno.EAGAIN, "resource temporarily unavailable: no further process .*`ulimit -u`.*fewer nodes"),
        (errno.ENOMEM, "cannot allocate memory: use fewer nodes"),
    ],
)
@for_each("path", [None, "/etc/passwd"])
def test_a_machine_that_has_no_more_is_no_matter_of_a_directory(
    tmp_path: Path, number: int, words: str, path: str | None
) -> None:
    error = OSError(number, os.strerror(number), path)
    with pytest.raises(CapabilityError, match=f"^{words}") as caught:
        raise of_os(error, tmp_path) or error
    assert str(tmp_path) not in str(caught.value) and "/etc" not in str(caught.value)


def test_paths_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    denied = of_os(PermissionError(errno.EACCES, "Permission denied"), tmp_path)
    assert str(denied) == f"{tmp_path}: permission denied; give another place"
    assert isinstance(of_os(IsADirectoryError(errno.EISDIR, "Is a directory", "out")), ScenarioError)
    assert of_os(OSError(errno.EIO, "Input/output error", "out")) is None
