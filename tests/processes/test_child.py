"""Child processes: how they end, what they say, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.process_id import start_ticks
from testbed.processes.child import UNEXPECTED, Child, end_all, first_to_end, fork, run_to_its_end, spawn
from tests.for_each import for_each


def wait_until_gone(file: Path) -> None:
    """Wait until the process whose number is in the file has ended; a zombie has."""
    while start_ticks(int(file.read_text())) is not None:
        time.sleep(0.01)


def says(*texts: bytes) -> Child:
    """Fork a process that writes these to the pipe for its lines."""
    return fork(lambda pipe: sum(os.write(pipe, text) for text in texts) * 0)


def test_lines_of_a_forked_process_come_whole() -> None:
    child = says(b'{"kind": "one"}\n{"ki', b'nd": "two"}\n')
    child.wait()
    found = []
    while (lines := child.read()) is not None:
        found += [line["kind"] for line in lines]
    assert found == ["one", "two"] and child.close() == 0


def raises() -> int:
    raise KeyError("in the child")


@for_each(
    ("body", "code"),
    [
        (lambda _: 7, 7),
        (lambda _: raises(), UNEXPECTED),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
    ],
)
def test_a_forked_process_ends_with_its_code_and_never_in_the_callers_stack(body: object, code: int) -> None:
    pid = os.getpid()
    try:
        child = fork(body)  # type: ignore[arg-type]
        assert child.wait() == code == child.close() == child.close()
    finally:
        assert os.getpid() == pid
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_signal_that_comes_before_the_child_is_ready_waits_for_it() -> None:
    def body(_: int) -> int:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
        time.sleep(0.05)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return 6

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child = fork(body, hold={signal.SIGTERM})
    child.send_signal(signal.SIGTERM)
    assert child.wait() == child.close() == 5
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_forked_process_dies_with_its_parent(tmp_path: Path) -> None:
    def parent(_: int) -> int:
        inner = fork(lambda _: time.sleep(3600) or 0)  # type: ignore[func-returns-value]
        (tmp_path / "pid").write_text(str(inner.pid))
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    outer = fork(parent)
    outer.wait()
    outer.close()
    wait_until_gone(tmp_path / "pid")


def test_commands_are_asked_to_end_and_killed_with_their_group_if_they_do_not() -> None:
    polite = spawn([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
    deaf = spawn(["sh", "-c", "trap '' TERM; echo ready; sleep 3600"], stdout=subprocess.PIPE, process_group=0)
    assert deaf.stdout is not None and deaf.stdout.readline() == b"ready\n"
    assert polite.end(240) == -signal.SIGTERM and polite.cpu_s > 0
    assert deaf.wait(0.05) is None
    deaf.send_signal(signal.SIGTERM)
    assert deaf.wait(0.05) is None
    deaf.kill_group()
    assert deaf.close() == -signal.SIGKILL


def test_the_first_to_end_is_told_and_others_are_ended_together() -> None:
    quick, slow = fork(lambda _: 3), fork(lambda _: time.sleep(3600) or 0)  # type: ignore[func-returns-value]
    assert first_to_end([slow, quick]) is quick
    end_all([quick, slow], 240)
    assert (quick.close(), slow.close()) == (3, -signal.SIGTERM)


def test_an_interrupt_ends_a_command_and_what_it_has_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(child: Child, limit_s: float | None = None) -> int | None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_to_its_end(["sh", "-c", f"sleep 3600 & echo $! > {tmp_path}/pid; wait"])
    wait_until_gone(tmp_path / "pid")
