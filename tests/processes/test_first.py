"""The process around a program: how it ends, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from testbed.processes import first
from tests.for_each import for_each

GONE_WITHIN_S = 240.0


@dataclass
class Guarded:
    process: subprocess.Popen[bytes]
    lifeline: int


@pytest.fixture
def started() -> Iterator[list[Guarded]]:
    all_: list[Guarded] = []
    yield all_
    for each in all_:
        each.process.kill()
        each.process.wait()


def start(started: list[Guarded], command: str, grace_s: float = 1.0, *, shell: bool = True) -> Guarded:
    """Start a shell command, or a program, below it; ``lifeline`` is the only write end."""
    read_end, write_end = os.pipe()
    argv = [sys.executable, "-S", "-E", first.__file__, "--lifeline", str(read_end), "--grace", str(grace_s), "--"]
    argv += ["sh", "-c", command] if shell else [command]
    process = subprocess.Popen(argv, pass_fds=[read_end])
    os.close(read_end)
    started.append(Guarded(process, write_end))
    return started[-1]


def written(path: Path) -> int:
    """Wait for a process id in a file."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_WITHIN_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@for_each(("shell", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -11 $$", -11)])
def test_it_ends_as_the_program_does(started: list[Guarded], shell: str, code: int) -> None:
    assert start(started, shell).process.wait(GONE_WITHIN_S) == code


def test_a_command_that_cannot_be_started_is_named(started: list[Guarded], capfd: pytest.CaptureFixture[str]) -> None:
    assert start(started, "no-such-program", shell=False).process.wait(GONE_WITHIN_S) == 127
    assert "no-such-program: No such file" in capfd.readouterr().err


def test_daemons_end_with_the_program(started: list[Guarded], tmp_path: Path) -> None:
    each = start(started, f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 0.3; exit 3")
    daemon = written(tmp_path / "pid")
    assert each.process.wait(GONE_WITHIN_S) == 3
    assert is_gone(daemon)


def test_the_end_of_the_lifeline_kills_everything(started: list[Guarded], tmp_path: Path) -> None:
    each = start(started, f"trap '' TERM; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 60")
    daemon = written(tmp_path / "pid")
    os.close(each.lifeline)
    assert each.process.wait(GONE_WITHIN_S) == -signal.SIGKILL
    assert is_gone(daemon)


def test_the_program_ends_with_a_guard_that_is_killed(started: list[Guarded], tmp_path: Path) -> None:
    each = start(started, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    program = psutil.Process(written(tmp_path / "pid"))
    each.process.kill()
    deadline = time.monotonic() + GONE_WITHIN_S
    while program.is_running() and program.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sigterm_reaches_the_program_and_the_rest_is_killed_after_its_grace(
    started: list[Guarded], tmp_path: Path
) -> None:
    polite = start(started, f"trap 'exit 5' TERM; echo $$ > {tmp_path}/polite; while :; do sleep 0.05; done", 60.0)
    stubborn = start(started, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done", 0.3)
    written(tmp_path / "polite")
    pid = written(tmp_path / "pid")
    polite.process.terminate()
    stubborn.process.terminate()
    assert polite.process.wait(GONE_WITHIN_S) == 5
    assert stubborn.process.wait(GONE_WITHIN_S) == -signal.SIGKILL and is_gone(pid)
