"""The journal lists and removes what dead runs left, and nothing of living ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import asdict

from emulation.journal import Journal, clean, leftovers
from testbed.cli import main as command
from testbed.process_id import ProcessId
from testbed.runtime_directory import runtime_directory
from tests.emulation.inside import ROOT

CODE = """
import subprocess, sys, time
from pathlib import Path
from emulation.journal import Journal
journal = Journal(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "1000"])
journal.process(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def no_warning(message: str) -> None:
    raise AssertionError(message)


def write_journal(base: Path, *entries: object) -> Path:
    """A journal of an owner that has ended, in the place of journals."""
    (base / "journals").mkdir(mode=0o700)
    journal = base / "journals" / "1-1.jsonl"
    lines = [{"pid": 1, "start_ticks": -1, "boot_id": "x"}, *entries]
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    return journal


def test_only_dead_runs_are_cleaned(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CODE, str(tmp_path)]
    owner = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = ProcessId.of(int(owner.stdout.readline()))
    kept = subprocess.Popen(["sleep", "1000"])
    living = Journal(tmp_path)
    living.process(kept.pid)
    assert leftovers(no_warning, tmp_path) == []
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert [leftover.kind for leftover in leftovers(no_warning, tmp_path)] == ["process", "journal"]
    assert len(clean(no_warning, tmp_path)) == 2
    deadline = time.monotonic() + 240
    while child.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not child.alive()
    assert kept.poll() is None and leftovers(no_warning, tmp_path) == []
    living.close()
    kept.kill()
    kept.wait()
    assert not list((tmp_path / "journals").iterdir())


def test_a_process_is_killed_only_if_it_is_the_very_one_that_is_meant() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        meant = ProcessId.of(child.pid)
        ProcessId(meant.pid, meant.start_ticks + 1, meant.boot_id).kill()
        ProcessId(meant.pid, meant.start_ticks, "another boot").kill()
        assert child.poll() is None
        meant.kill()
        assert child.wait(240) == -signal.SIGKILL
    meant.kill()  # it has ended
    ProcessId.of(os.getpid()).kill()  # never itself


def test_a_torn_line_is_ignored(tmp_path: Path) -> None:
    journal = write_journal(tmp_path)
    journal.write_text(journal.read_text() + '{"process": {"pid": 12')
    assert [leftover.kind for leftover in clean(no_warning, tmp_path)] == ["journal"]


def test_the_command_lists_first_and_ends_only_what_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    base = runtime_directory()
    assert base == tmp_path / "testbed"
    with subprocess.Popen(["sleep", "1000"]) as left, subprocess.Popen(["sleep", "1000"]) as beside:
        write_journal(base, {"process": asdict(ProcessId.of(left.pid))})
        assert command.main(["clean", str(tmp_path), "--dry-run"]) == 0
        assert f"process {left.pid}" in capsys.readouterr().out and left.poll() is None
        assert command.main(["clean", str(tmp_path)]) == 0
        assert f"removed process {left.pid}" in capsys.readouterr().out
        assert left.wait(240) == -signal.SIGKILL and beside.poll() is None
        beside.kill()
    assert command.main(["clean", str(tmp_path)]) == 0
    assert "nothing to clean" in capsys.readouterr().out


def test_a_journal_whose_owner_has_not_yet_written_is_left_alone(tmp_path: Path) -> None:
    journal = write_journal(tmp_path)
    journal.write_text("")
    assert leftovers(no_warning, tmp_path) == []
    os.utime(journal, (0, 0))
    assert [left.kind for left in clean(no_warning, tmp_path)] == ["journal"] and not journal.exists()
