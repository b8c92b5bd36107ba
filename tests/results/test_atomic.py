"""Files are absent or whole, also when the writer is killed; temporary files of the dead are swept."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from testbed.process_id import ProcessId, start_ticks
from testbed.results import atomic


def writer(path: Path) -> tuple[int, int]:
    """Fork a process that replaces a file again and again; return its id, and what it writes to when it has begun."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            slow_disk = pytest.MonkeyPatch()  # the suite waits for none
            slow_disk.setattr(os, "fsync", lambda descriptor: time.sleep(0.001))
            for number in range(1_000_000):
                atomic.write_json(path, {"number": number, "filling": [number] * 4_000})
                if number == 0:
                    os.write(write_end, b".")
        finally:
            os._exit(1)
    os.close(write_end)
    return pid, read_end


def test_a_killed_writer_leaves_the_old_or_the_new_content_whole(tmp_path: Path) -> None:
    result, chance = tmp_path / "result.json", random.Random(5)
    left_behind = 0
    for _ in range(12):
        pid, begun = writer(result)
        assert os.read(begun, 1) == b"."
        time.sleep(chance.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(begun)
        content = json.loads(result.read_text())
        assert content["filling"] == [content["number"]] * 4_000
        left_behind += len(atomic.sweep(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert left_behind > 0, "no kill hit a write: the trials have shown nothing"


def test_an_error_while_writing_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    atomic.write_text(path, "old")
    with pytest.raises(RuntimeError), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_sweep_spares_live_writers_and_other_files(tmp_path: Path) -> None:
    me = ProcessId.current()
    live = tmp_path / f".result.json.{me.pid}-{me.start_ticks}.tmp"
    reused = tmp_path / f".result.json.{me.pid}-{me.start_ticks - 1}.tmp"
    other = tmp_path / ".editor.tmp"
    for path in (live, reused, other):
        path.touch()
    assert atomic.sweep(tmp_path) == [reused]
    assert live.exists()
    assert other.exists()


def test_a_zombie_is_dead() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    deadline = time.monotonic() + 10
    while start_ticks(child) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.waitpid(child, 0)
