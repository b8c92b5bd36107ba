"""The journal lists and removes what dead runs left, and nothing of living ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulation.journal import Journal, ProcessId, clean, leftovers
from testbed.cli import main as command
from tests.emulation.inside import ROOT

CODE = """
import subprocess, sys, time
from pathlib import Path
from emulation.journal import Journal
journal, path = Journal(Path(sys.argv[1])), Path(sys.argv[2])
journal.path(path)
path.mkdir(); (path / "file").write_text("x")
child = subprocess.Popen(["sleep", "1000"])
journal.process(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_only_dead_runs_are_cleaned(tmp_path: Path) -> None:
    journals, left, kept = tmp_path / "journals", tmp_path / "left", tmp_path / "kept"
    argv = [sys.executable, "-c", CODE, str(journals), str(left)]
    owner = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = ProcessId.of(int(owner.stdout.readline()))
    living = Journal(journals)
    living.path(kept)
    kept.mkdir()
    assert leftovers(journals) == []
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert [leftover.kind for leftover in leftovers(journals)] == ["process", "path", "journal"]
    assert len(clean(journals)) == 3
    deadline = time.monotonic() + 5
    while child.alive() and _state(child.pid) != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left.exists() and (not child.alive() or _state(child.pid) == "Z")
    assert kept.exists() and leftovers(journals) == []
    living.close()
    assert not list(journals.iterdir())


def test_a_reused_process_id_is_not_the_owner(tmp_path: Path) -> None:
    me = ProcessId.of(os.getpid())
    assert me.alive()
    assert not ProcessId(me.pid, me.start_ticks + 1, me.boot).alive()
    assert not ProcessId(me.pid, me.start_ticks, "another boot").alive()


def test_a_torn_line_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "1-1.jsonl").write_text('{"pid": 1, "start_ticks": -1, "boot": "x"}\n{"path": "/no/such')
    assert [leftover.kind for leftover in clean(tmp_path)] == ["journal"]


def test_the_command_lists_first_and_removes_by_exact_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, beside = tmp_path / "left", tmp_path / "left-not"
    left.mkdir()
    beside.mkdir()
    journals = tmp_path / "journals"
    journals.mkdir()
    entries = [{"pid": 1, "start_ticks": -1, "boot": "x"}, {"path": str(left)}]
    (journals / "1-1.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    monkeypatch.setattr("emulation.journal.DIRECTORY", journals)
    assert command.main(["clean", str(tmp_path), "--dry-run"]) == 0
    assert f"path {left}" in capsys.readouterr().out and left.exists()
    assert command.main(["clean", str(tmp_path)]) == 0
    assert f"removed path {left}" in capsys.readouterr().out
    assert not left.exists() and beside.exists()
    assert command.main(["clean", str(tmp_path)]) == 0
    assert "nothing to clean" in capsys.readouterr().out


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def test_a_journal_whose_owner_has_not_yet_written_is_left_alone(tmp_path: Path) -> None:
    journal = tmp_path / "1-1.jsonl"
    journal.touch()
    assert leftovers(tmp_path) == []
    os.utime(journal, (0, 0))
    assert [left.kind for left in clean(tmp_path)] == ["journal"] and not journal.exists()
