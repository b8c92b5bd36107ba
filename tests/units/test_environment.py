"""What the host process and users' programs are started with, and what errors of the operating system mean."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from testbed import environment
from testbed.errors import CapabilityError, ScenarioError, of_os
from tests.for_each import for_each


@for_each("allowed", [3000, 4 << 20])
def test_as_many_files_may_be_open_as_the_machine_allows_but_no_more_than_a_million(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Programs that close all numbers that they may have would take minutes for those of a container."""
    limits = [(1024, allowed)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append(limit))
    for _ in range(2):
        environment.allow_descriptors()
    assert limits == [(1024, allowed), (min(allowed, 1 << 20), allowed)]


@for_each("users", ["", "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=2"])
def test_a_users_program_has_the_users_tunables_alone(monkeypatch: pytest.MonkeyPatch, users: str) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", users)
    monkeypatch.setenv("GLIBC_TUNABLES", environment.host_environment()["GLIBC_TUNABLES"])
    assert environment.program_environment().get("GLIBC_TUNABLES", "") == users


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
    text_alone = FileNotFoundError("sensors.npz: fetch it first")
    assert of_os(text_alone, tmp_path) is None
    assert str(text_alone) == "sensors.npz: fetch it first", "as it was"
