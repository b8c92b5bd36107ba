"""Ctrl-C, SIGTERM and a terminal's end, against the command in a process of its own (its session only lingers)."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import testbed.cli.schema
from testbed.execution import session, sweep
from tests.cli.forked import Forked, command
from tests.for_each import for_each
from tests.results.fake_run import fake_session, make_plan

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def linger(begun: Path) -> None:
    """Let the session write the events of a run, then wait."""

    def lingering(plan: Any, directory: Path, on_progress: Any, *_: Any) -> None:
        fake_session(make_plan(back_end="local"), directory, on_progress)
        begun.touch()
        time.sleep(60)

    session.run = lingering  # type: ignore[assignment]


def start(out: Path, prepare: Callable[[], None] = lambda: None, how: str = "--quiet") -> Forked:
    begun = out.with_name("begun")

    def prepared() -> None:
        prepare()
        linger(begun)

    return under_way(["run", str(QUICKSTART), "--on", "local", how, "--out", str(out)], begun, prepared)


def under_way(arguments: list[str], begun: Path, prepare: Callable[[], None]) -> Forked:
    """Return the command when the file ``begun`` is there."""
    run = Forked(arguments, prepare)
    deadline_s = time.monotonic() + 240
    while not begun.exists():
        assert run.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.01)
    return run


@for_each(("number", "code", "how"), [(signal.SIGINT, 130, "--quiet"), (signal.SIGTERM, 143, "--json")])
def test_one_signal_ends_the_run_with_its_results(tmp_path: Path, number: signal.Signals, code: int, how: str) -> None:
    run = start(tmp_path / "run", how=how)
    os.kill(run.pid, number)
    ended = run.wait(timeout=240)
    assert ended.returncode == code
    assert ended.stderr == "testbed: interrupted; the results so far are kept\n"
    assert how != "--json" or json.loads(ended.stdout.splitlines()[-1])["exit_code"] == code
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["status"], result["accuracy"]) == ("interrupted", pytest.approx(0.9305))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"


ENDLESS = """
import os, signal
from dataclasses import dataclass
from testbed.codec.base import Codec

class Endless(Codec):
    @dataclass(frozen=True, slots=True)
    class Options:
        pass

    def __init__(self, options, context):
        pass

    def encode(self, wire_key, tensor):
        os.kill(os.getppid(), signal.SIGINT)  # as if a user had lost patience
        while True:
            pass

    def decode(self, wire_key, parts, size):
        return parts[0]
"""
SMALL = """
version: 1
name: small
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, split: iid, batch: 32, rounds: 2}
codec: ./endless.py:Endless
"""


def test_an_interrupted_simulation_tells_in_whose_code_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a technique that never ends, nothing else in virtual time tells."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    ended = Forked(["run", "small.yaml", "--out", "run", "--quiet"]).wait(timeout=240)
    assert ended.returncode == 130
    line = 1 + ENDLESS.splitlines().index("            pass")
    place = re.search(r"the results so far are kept \(it was at (.*):(\d+)\)$", ended.stderr.strip())
    assert place and place[1].endswith("endless.py") and int(place[2]) in (line - 2, line - 1, line)


def test_impatience_costs_nothing_but_what_can_be_made_later(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    for _ in range(12):
        if run.poll() is None:
            os.kill(run.pid, signal.SIGINT)
        time.sleep(0.02)
    ended = run.wait(timeout=240)
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_a_run_whose_terminal_is_closed_keeps_its_results(tmp_path: Path) -> None:
    """As when a connection by ssh is lost: SIGHUP, and nothing can be written to the terminal any more."""
    ours, terminal = pty.openpty()

    def on_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(terminal, descriptor)
        os.close(ours)

    run = start(tmp_path / "run", on_terminal)
    os.close(terminal)
    os.close(ours)
    assert run.wait(timeout=240).returncode == 143
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"


@for_each("closed", [(1,), (1, 2)])
def test_a_sweep_outlives_the_reader_of_its_output_and_keeps_its_exit_code(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    """As below ``| head -1``."""

    def fails(job: sweep.SweepJob, on_state: Any, warn: Any) -> list[dict[str, Any]]:
        on_state(job.points[0], "failed")
        warn("its machine is gone")
        (tmp_path / "done").touch()
        return sweep.table(job)

    def into_a_closed_pipe() -> None:
        sweep.execute = fails  # type: ignore[assignment]
        end, output = os.pipe()
        os.close(end)
        for descriptor in closed:
            os.dup2(output, descriptor)

    ended = command(["sweep", str(QUICKSTART), "--out", str(tmp_path / "sweep")], prepare=into_a_closed_pipe)
    assert (tmp_path / "done").exists() and ended.returncode == 4
    assert ended.stderr == ("" if 2 in closed else "warning: its machine is gone\n")


def test_by_sigterm_every_verb_removes_its_temporary_files(tmp_path: Path) -> None:
    def waits(_: Any) -> int:
        with tempfile.TemporaryDirectory(dir=tmp_path):
            begun.touch()
            time.sleep(60)
        return 0

    def waiting() -> None:
        testbed.cli.schema.execute = waits  # type: ignore[assignment]

    begun = tmp_path / "begun"
    run = under_way(["schema"], begun, waiting)
    os.kill(run.pid, signal.SIGTERM)
    ended = run.wait(timeout=240)
    assert (ended.returncode, ended.stderr) == (143, "testbed: interrupted\n")
    assert list(tmp_path.iterdir()) == [begun]


@for_each(("name", "ended"), [("/opt/bin/testbed", ""), ("-m", ""), ("/home/me/mine.py", "KeyboardInterrupt")])
def test_while_the_command_is_imported_an_interrupt_ends_it_without_a_traceback(name: str, ended: str) -> None:
    """A program that imports the package keeps Python's own handler."""
    heeding = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # which a shell's background does not
    begun = f"import os, signal, sys; {heeding}; sys.argv[0] = '{name}'"
    code = f"{begun}; import testbed.cli; os.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.strip().endswith(ended) and bool(done.stderr) == bool(ended)
