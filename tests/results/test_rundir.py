"""Who may have a run directory, whose it is below sudo, what becomes of crashed ones; files are absent or whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.errors import ScenarioError
from testbed.process_id import ProcessId, RunOwner, pid_space
from testbed.results import atomic, owner, rundir
from testbed.results.rundir import AlreadyDone, RunDirectory, claim, read_json
from tests.for_each import for_each

PLAN, OTHER = "a" * 64, "b" * 64


def crashed(path: Path) -> RunDirectory:
    """A directory whose owner was killed while it ran."""
    owner = os.fork()
    if owner == 0:
        try:
            claim(path, PLAN).set_status("running", PLAN)
        finally:
            os._exit(0)
    os.waitpid(owner, 0)
    return RunDirectory(path)


def test_a_folder_of_somebody_else_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ScenarioError, match=r"not empty and not a run directory \(it holds 'thesis.tex'\)"):
        claim(tmp_path, PLAN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_live_run_is_refused_with_its_process(tmp_path: Path) -> None:
    claim(tmp_path / "run", PLAN).set_status("running", PLAN)
    with pytest.raises(ScenarioError, match=r"is in use by the run of process \d+"):
        claim(tmp_path / "run", PLAN, again=True)


@for_each("state", ["done", "reduced"])
def test_a_finished_run_is_done_once(tmp_path: Path, state: str) -> None:
    claim(tmp_path / "run", PLAN).set_status(state, PLAN)
    with pytest.raises(AlreadyDone):
        claim(tmp_path / "run", PLAN)
    with pytest.raises(ScenarioError, match="finished run of another plan"):
        claim(tmp_path / "run", OTHER)
    assert claim(tmp_path / "run", OTHER, again=True).status().plan_sha256 == OTHER


@for_each("state", ["failed", "interrupted"])
def test_an_unfinished_run_is_started_anew_but_notes_stay(tmp_path: Path, state: str) -> None:
    run = claim(tmp_path / "run", PLAN)
    run.set_status(state, PLAN)
    (run.events / "tokyo.worker0.0000.jsonl.gz").write_text("{}\n")
    (run.path / "notes.md").write_text("mine")
    claim(tmp_path / "run", PLAN)
    assert list(run.events.iterdir()) == []
    assert (run.path / "notes.md").read_text() == "mine"


def test_a_crashed_run_is_seen_replaced_and_buried(tmp_path: Path) -> None:
    run = crashed(tmp_path / "run")
    assert run.status().state == "crashed"
    assert rundir.close_crashed(run) == "failed"
    assert run.status().state == "failed"
    assert rundir.close_crashed(run) is None
    again = crashed(tmp_path / "other")
    assert claim(again.path, PLAN).status().state == "pending"


def test_a_run_that_crashed_after_its_result_keeps_its_word(tmp_path: Path) -> None:
    run = crashed(tmp_path / "run")
    run.file("result.json").write_text(json.dumps({"status": "done"}))
    assert rundir.close_crashed(run) == "done"


def change_owner(run: RunDirectory, **fields: str) -> None:
    """Let the owner of a run be one with other fields; those that are empty are left out."""
    path = run.file("status.json")
    status = json.loads(path.read_text())
    owner = status["owner"] | fields
    path.write_text(json.dumps({**status, "owner": {name: value for name, value in owner.items() if value != ""}}))


def age(directory: Path, seconds: float) -> None:
    """Let a directory and all below it have changed so long ago."""
    for path in (directory, *directory.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2)


ELSEWHERE = [
    {"space": "0123abcd", "host": "other"},
    {"space": "0123abcd", "host": "other", "machine": "89abcdef", "boot_id": "another"},
]


@for_each("owner", ELSEWHERE)
def test_a_run_elsewhere_lives_until_nothing_has_changed_for_an_hour(tmp_path: Path, owner: dict[str, str]) -> None:
    """Its process number says nothing here: that of a dead process here, and that of a live one."""
    for run in (crashed(tmp_path / "dead"), claim(tmp_path / "live", PLAN)):
        change_owner(run, **owner)
        age(run.path, 7200)
        os.utime(run.events)
        assert run.status().state in ("pending", "running") and rundir.close_crashed(run) is None
        with pytest.raises(ScenarioError, match=r"process \d+ on other, another machine or container; give .* an hour"):
            claim(run.path, PLAN, again=True)
        age(run.path, 7200)
        assert run.status().state == "crashed"
        assert claim(run.path, PLAN).status().owner == RunOwner.current()


def test_two_claimants_at_once_one_wins(tmp_path: Path) -> None:
    """Each says how its claim went, and lives on until all have said so."""
    told, tells = os.pipe()
    held, holds = os.pipe()
    claimants = []
    for _ in range(4):
        claimant = os.fork()
        if claimant == 0:
            try:
                os.close(holds)
                claim(tmp_path / "run", PLAN).set_status("running", PLAN)
                os.write(tells, b"won\n")
            except Exception as error:
                os.write(tells, f"{type(error).__name__}\n".encode())
            finally:
                os.read(held, 1)
                os._exit(0)
        claimants.append(claimant)
    os.close(tells)
    with open(told) as lines:
        words = [lines.readline().strip() for _ in claimants]
    os.close(holds)
    os.close(held)
    for claimant in claimants:
        os.waitpid(claimant, 0)
    assert sorted(words) == ["ScenarioError"] * 3 + ["won"]


class _Killed(BaseException):
    pass


def _left_by_a_run(path: Path) -> RunDirectory:
    run = claim(path, PLAN)
    for name in ("plan.json", "manifest.json", "result.json", "summary.txt"):
        run.file(name).write_text("{}")
    (run.events / "a.0000.jsonl.gz").write_bytes(b"x")
    run.tables.mkdir()
    run.set_status("failed", PLAN)
    return run


def _claim_and_die(path: Path, at: int, patch: pytest.MonkeyPatch) -> bool:
    """Claim, and be killed before the step of this number; return whether there was one."""
    left = iter(range(at))

    def dying(call: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            if next(left, None) is None:
                raise _Killed
            return call(*arguments, **named)

        return step

    for holder, name in ((shutil, "rmtree"), (os, "replace"), (Path, "unlink"), (Path, "mkdir")):
        patch.setattr(holder, name, dying(getattr(holder, name)))
    try:
        claim(path, PLAN)
    except _Killed:
        return True
    return False


def test_a_claim_that_is_killed_at_any_step_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a sweep is killed twice: the second time while it clears what the first has left."""
    for at in range(60):
        run = _left_by_a_run(tmp_path / str(at))
        with monkeypatch.context() as patch:
            killed = _claim_and_die(run.path, at, patch)
        if not killed:
            break
        status = run.file("status.json")
        status.write_text(status.read_text().replace('"boot_id": "', '"boot_id": "another '))  # its owner is dead
        assert claim(run.path, PLAN).status().state == "pending"
        assert sorted(path.name for path in run.path.iterdir()) == [".status.reserve", "events", "status.json"]
    assert 10 < at < 59


@for_each(("letter", "most"), [("x", 6000), ("😀", 500)])
def test_a_final_status_needs_no_space(letter: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is as long as the space that was taken for it allows, whatever letters it has."""
    run = claim(tmp_path / "run", PLAN)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("testbed.results.atomic.write_bytes", mock.Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left"):
            run.set_status("running", PLAN)
        run.set_status("failed", PLAN, letter * 100_000)
    assert run.status().state == "failed" and run.status().message == letter * most
    assert run.file("status.json").stat().st_size <= 8192
    assert not (run.path / ".status.reserve").exists()


def test_a_run_directory_is_the_users_own(tmp_path: Path) -> None:
    assert stat.S_IMODE(claim(tmp_path / "run", PLAN).path.stat().st_mode) == 0o700


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


def killed(act: Callable[[Callable[[], None]], None]) -> None:
    """Run ``act`` in a process of its own, and kill it where it calls what it gets."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:

        def die_here() -> None:
            os.write(write_end, b".")
            signal.pause()

        try:
            act(die_here)
        finally:
            os._exit(1)
    os.close(write_end)
    reached = os.read(read_end, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read_end)
    assert reached == b".", "the process ended before the moment of its death"


def killed_while_its_bytes_are_written(path: Path, die_here: Callable[[], None]) -> None:
    with atomic.replacing(path) as temporary, temporary.open("wb") as file:
        file.write(b"ne")
        file.flush()
        die_here()


def killed_at_its_sync(path: Path, number: int, die_here: Callable[[], None]) -> None:
    """Write, and die when the file (the first sync) or its directory (the second) goes to disk."""
    moments = iter([*[lambda: None] * number, die_here])
    pytest.MonkeyPatch().setattr(os, "fsync", lambda descriptor: next(moments)())
    atomic.write_text(path, "new")


@for_each(
    ("write", "content", "left_behind"),
    [
        pytest.param(killed_while_its_bytes_are_written, "old", 1, id="half its bytes"),
        pytest.param(lambda path, die: killed_at_its_sync(path, 0, die), "old", 1, id="before it is renamed"),
        pytest.param(lambda path, die: killed_at_its_sync(path, 1, die), "new", 0, id="renamed"),
    ],
)
def test_a_killed_writer_leaves_the_old_or_the_new_content_whole(
    tmp_path: Path, write: Callable[[Path, Callable[[], None]], None], content: str, left_behind: int
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    killed(lambda die_here: write(path, die_here))
    assert path.read_text() == content
    assert len(atomic.sweep(tmp_path)) == left_behind
    assert list(tmp_path.iterdir()) == [path]


def test_sweep_spares_live_writers_and_other_files(tmp_path: Path) -> None:
    me = ProcessId.current()
    live = tmp_path / f".result.json.{me.pid}-{me.start_ticks}-{pid_space()}.tmp"
    reused = tmp_path / f".result.json.{me.pid}-{me.start_ticks - 1}-{pid_space()}.tmp"
    other = tmp_path / ".editor.tmp"
    for path in (live, reused, other):
        path.touch()
    assert atomic.sweep(tmp_path) == [reused]
    assert live.exists()
    assert other.exists()


def test_sweep_spares_what_another_machine_may_be_writing(tmp_path: Path) -> None:
    """A process id from there, or from inside an emulation, says nothing about whether the writer lives."""
    new, old = (tmp_path / f".{name}.{2**31 - 1}-1-0123abcd.tmp" for name in ("new", "old"))
    for path in (new, old):
        path.touch()
    yesterday = time.time() - 86_400
    os.utime(old, (yesterday, yesterday))
    assert atomic.sweep(tmp_path) == [old]
    assert new.exists()


def test_texts_with_bytes_of_paths_that_are_no_utf_8_are_written_and_json_is_read_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"r\xff")
    path = tmp_path / name
    atomic.write_json(path, {"at": name})
    assert json.loads(path.read_bytes()) == {"at": name}
    assert read_json(path) == {"at": name}
    atomic.write_text(path, f"at: {name}")
    assert path.read_bytes() == b"at: r\\udcff"
