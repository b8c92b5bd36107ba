"""The directory for run-time state is used only if nobody else can read it, change it, or put another in its place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import CapabilityError
from testbed.runtime_directory import private_directory, runtime_directory
from tests.for_each import for_each

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, where neither XDG_RUNTIME_DIR nor /run can be used."""
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("testbed.runtime_directory.RUN", tmp_path / "no run")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def test_it_is_below_xdg_runtime_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_directory() == tmp_path / "testbed" == runtime_directory()
    assert (tmp_path / "testbed").stat().st_mode & 0o7777 == 0o700


def test_otherwise_it_is_among_temporary_files(temporary: Path) -> None:
    assert runtime_directory() == temporary / f"testbed-{os.geteuid()}" == runtime_directory()
    assert runtime_directory().stat().st_mode & 0o7777 == 0o700


@needs_root
def test_an_ordinary_user_has_one_as_well(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:  # pytest's own directories are for root alone
        Path(shared).chmod(0o1777)
        monkeypatch.setattr("tempfile.tempdir", shared)
        os.seteuid(NOBODY)
        try:
            made = runtime_directory()
        finally:
            os.seteuid(0)
        assert made == Path(shared, f"testbed-{NOBODY}") and made.stat().st_uid == NOBODY
        with pytest.raises(CapabilityError, match=f"it belongs to user {NOBODY}"):
            private_directory(made)


@for_each("kind", ["shared", "link", "file", "none", "relative", "nobody's", "below nobody's"])
def test_an_xdg_runtime_dir_that_fails_the_checks_is_not_used(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    given = tmp_path / "given"
    match kind:
        case "shared":
            given.mkdir()
            given.chmod(0o1777)
        case "link":
            (tmp_path / "real").mkdir(mode=0o700)
            given.symlink_to("real")
        case "file":
            given.touch(mode=0o600)
        case "relative":
            monkeypatch.chdir(tmp_path)
            given.mkdir(mode=0o700)
        case "nobody's" | "below nobody's":
            if os.geteuid() != 0:
                pytest.skip("only root can make files of other users")
            given.mkdir(mode=0o700)
            os.chown(given, NOBODY, NOBODY)
            if kind == "below nobody's":
                given /= "ours"
                given.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "given" if kind == "relative" else str(given))
    assert runtime_directory() == temporary / f"testbed-{os.geteuid()}"
    assert not (given / "testbed").exists()


def somebody_elses(place: Path, mode: int = 0o700) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of other users")
    os.chown(place, NOBODY, NOBODY)
    place.chmod(mode)


def link_to_elsewhere(place: Path) -> None:
    place.rmdir()
    (place.parent.parent / "elsewhere").mkdir(mode=0o700, exist_ok=True)
    place.symlink_to(place.parent.parent / "elsewhere")


@for_each(
    ("make", "problem"),
    [
        (link_to_elsewhere, r"it is a symbolic link; .* cure: remove it, or set XDG_RUNTIME_DIR"),
        (somebody_elses, f"it belongs to user {NOBODY} and not to user 0"),
        (lambda place: place.chmod(0o770), r"others have access to it \(mode 0770\)"),
        (lambda place: place.chmod(0o705), r"others have access to it \(mode 0705\)"),
        (lambda place: place.parent.chmod(0o777), r"others can write to .*/tmp .* and so replace it"),
        (lambda place: place.parent.chmod(0o2775), r"others can write to .*/tmp .* and so replace it"),
        (lambda place: somebody_elses(place.parent, 0o1777), f"/tmp belongs to user {NOBODY}, who could replace it"),
    ],
)
def test_a_directory_that_others_have_in_their_hands_is_refused(
    temporary: Path, make: Callable[[Path], None], problem: str
) -> None:
    place = temporary / f"testbed-{os.geteuid()}"
    for each in (place, temporary):
        if each.is_symlink():
            each.unlink()
        each.mkdir(exist_ok=True)
        os.chown(each, os.geteuid(), os.getegid())
    temporary.chmod(0o1777)
    place.chmod(0o700)
    assert runtime_directory() == place
    make(place)
    with pytest.raises(CapabilityError, match=problem):
        runtime_directory()
