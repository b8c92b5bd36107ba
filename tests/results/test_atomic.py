"""Files are absent or whole, also when the writer is killed; temporary files of the dead are swept."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.process_id import ProcessId, pid_space
from testbed.results import atomic
from testbed.results.rundir import read_json
from tests.for_each import for_each


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
