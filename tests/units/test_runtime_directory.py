"""The directory for run-time state is used only if nobody else can read it, change it, or put another in its place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numba
import pytest
from numba.core import caching

from testbed.errors import CapabilityError
from testbed.numba_cache import compiled_by_numba
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


@needs_root
def test_otherwise_it_is_in_run_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("testbed.runtime_directory.RUN", tmp_path)
    assert runtime_directory() == tmp_path / "testbed"


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


def test_a_symbolic_link_in_its_place_is_refused(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (temporary / f"testbed-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CapabilityError, match=r"it is a symbolic link; .* cure: remove it, or set XDG_RUNTIME_DIR"):
        runtime_directory()


def test_a_link_that_leads_nowhere_is_refused_and_nothing_made(temporary: Path, tmp_path: Path) -> None:
    (temporary / f"testbed-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CapabilityError, match="it is a symbolic link"):
        runtime_directory()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_in_its_place_is_refused(temporary: Path) -> None:
    (temporary / f"testbed-{os.geteuid()}").touch(mode=0o600)
    with pytest.raises(CapabilityError, match="it is not a directory"):
        runtime_directory()


@needs_root
def test_a_directory_of_somebody_else_is_refused(temporary: Path) -> None:
    place = temporary / "testbed-0"
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(CapabilityError, match=f"{place}: it belongs to user {NOBODY} and not to user 0"):
        runtime_directory()


@for_each("mode", [0o770, 0o707, 0o720, 0o702, 0o750, 0o705, 0o1777, 0o710])
def test_a_directory_that_others_can_enter_is_refused(temporary: Path, mode: int) -> None:
    place = temporary / f"testbed-{os.geteuid()}"
    place.mkdir(exist_ok=True)
    place.chmod(mode)
    with pytest.raises(CapabilityError, match=rf"others have access to it \(mode {mode:04o}\)"):
        runtime_directory()


@for_each("mode", [0o777, 0o770, 0o2775])
def test_a_tmpdir_without_the_sticky_bit_is_refused(temporary: Path, mode: int) -> None:
    temporary.chmod(mode)
    with pytest.raises(CapabilityError, match=rf"others can write to {temporary} .* and so replace it"):
        runtime_directory()
    assert list(temporary.iterdir()) == []


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_tmpdir_of_somebody_else_is_refused(temporary: Path, mode: int) -> None:
    os.chown(temporary, NOBODY, NOBODY)
    temporary.chmod(mode)
    with pytest.raises(CapabilityError, match=f"{temporary} belongs to user {NOBODY}, who could replace it"):
        runtime_directory()
    assert list(temporary.iterdir()) == []


@needs_root
def test_a_tmpdir_below_a_directory_of_somebody_else_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = temporary / "theirs"
    (theirs / "tmp").mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    monkeypatch.setattr("tempfile.tempdir", str(theirs / "tmp"))
    with pytest.raises(CapabilityError, match=f"{theirs} belongs to user {NOBODY}"):
        runtime_directory()


def test_a_tmpdir_that_is_a_link_is_followed_once_and_for_all(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(temporary)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "link"))
    assert runtime_directory() == temporary / f"testbed-{os.geteuid()}"  # whoever changes the link changes nothing


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CapabilityError, match="XDG_RUNTIME_DIR"):
        private_directory(tmp_path / "a" / "testbed")


def test_what_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"No such file or directory; .* cure"):
        private_directory(tmp_path / "none" / "testbed")


def test_compiled_loops_are_kept_here_if_neither_sources_nor_home_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that is started as another user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    named = [place for place in caching.CacheImpl._locator_classes if "UserProvided" in place.__name__]
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", named)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    loop = compiled_by_numba(lambda: numba.njit(cache=True)(private_directory))
    assert Path(loop.stats.cache_path).is_relative_to(tmp_path / "testbed" / "numba")
