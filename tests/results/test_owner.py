"""Below sudo, run directories become the caller's; nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.results import owner
from testbed.results.rundir import claim
from tests.for_each import for_each

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))


@needs_root
@pytest.mark.usefixtures("sudo")
def test_a_run_that_has_ended_is_the_callers(tmp_path: Path) -> None:
    victim, named_twice = tmp_path / "victim", tmp_path / "twice"
    victim.mkdir()
    (victim / "file").touch()
    named_twice.touch()
    run = claim(tmp_path / "runs" / "run", "a")
    assert (tmp_path / "runs").stat().st_uid == NOBODY and run.path.stat().st_uid == 0
    run.file("log").touch()
    (run.path / "link").symlink_to(victim)
    (run.events / "link").symlink_to(victim / "file")
    (run.path / "hard").hardlink_to(named_twice)
    run.set_status("done", "a")
    owned = {path.name: path.lstat().st_uid for path in (run.path, *run.path.rglob("*"))}
    assert owned == {"run": NOBODY, "events": NOBODY, "log": NOBODY, "status.json": NOBODY, "link": NOBODY, "hard": 0}
    assert [path.stat().st_uid for path in (victim, victim / "file", named_twice, tmp_path)] == [0, 0, 0, 0]


@pytest.mark.usefixtures("sudo")
@for_each("text", ["", "0", "-1", "1_0", "x"])
def test_only_another_user_is_a_caller(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SUDO_UID", text)
    assert owner.caller() is None


def test_without_sudo_nothing_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    run = claim(tmp_path / "run", "a")
    run.set_status("done", "a")
    assert run.path.stat().st_uid == os.geteuid()
