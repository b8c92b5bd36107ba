"""The cause of any failure of a script is the run's message, with node, file and line; its traceback is kept."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.execution import host, session
from testbed.plan.build import build_plan
from testbed.results.failures import Cause, FailureFiles, cause_of, is_users, place_in_dump
from testbed.results.oom_kills import OomKills
from testbed.scenario.load import load
from tests.cli.forked import command
from tests.kvstore.failing import CASES, KINDS, SCENARIO, assert_named, run_failing


@pytest.mark.slow  # 30 s; all hundred: python -m tests.kvstore.failing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the script's own
@pytest.mark.parametrize(("back_end", "kind", "place"), random.Random(1).sample(CASES, 12))
def test_a_failure_is_named(back_end: str, kind: str, place: str, tmp_path: Path) -> None:
    assert_named(tmp_path / "a", kind, run_failing(tmp_path / "a", back_end, kind, place))


@pytest.mark.sample(3, "simulate-own exception-middle in a thread")  # of 10, which take 6 s
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the script's own
@pytest.mark.parametrize(
    ("back_end", "kind", "place"),
    [
        ("simulate", "exception", "start"),
        ("simulate", "own exception", "middle in a thread"),
        ("simulate", "module", "end"),
        ("simulate", "syntax of the script", "start"),
        ("simulate", "hang", "connected"),
        ("local", "exit with a text", "end"),
        ("local", "SIGKILL", "middle"),
        ("local", "os._exit 0", "middle in a thread"),
        ("local", "segmentation fault", "connected"),
        ("local", "sample in a loader's process", "middle"),
    ],
)
def test_a_failure_is_named_here_and_in_processes(back_end: str, kind: str, place: str, tmp_path: Path) -> None:
    assert_named(tmp_path / "a", kind, run_failing(tmp_path / "a", back_end, kind, place, step_deadline_s=1.5))


def test_a_run_without_a_failure_leaves_no_file_of_one(tmp_path: Path) -> None:
    result = run_failing(tmp_path / "a", "local", "exception", "nowhere")
    assert result.status == "done", result.message
    assert not (tmp_path / "a" / "run" / "failures").exists()


GREEDY = """
import os, torch
from testbed.kvstore import connect
store = connect()
store.init("x", torch.zeros(1))
store.pull("x")
if store.rank == 1:
    with open("PROCS", "w") as file:
        file.write(str(os.getpid()))
    taken = []
    while True:
        taken.append(torch.ones(1 << 22))
store.pushpull("x", torch.ones(1))
"""


def memory_group() -> tuple[Path, str] | None:
    """Return the hierarchy of memory groups and the name of a group's limit; None where groups cannot be made."""
    root = Path("/sys/fs/cgroup")
    for folder, limit in ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max")):
        if os.access(folder / "cgroup.procs", os.W_OK) and (folder.name == "memory" or _has_memory(folder)):
            return folder, limit
    return None


def _has_memory(folder: Path) -> bool:
    try:
        return "memory" in (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


@pytest.mark.slow  # 6 s
@pytest.mark.skipif(memory_group() is None, reason="limits of memory need a writable control group")
def test_the_kernels_kill_for_want_of_memory_is_told_apart(tmp_path: Path) -> None:
    found = memory_group()
    assert found is not None
    group = found[0] / f"greedy-{os.getpid()}"
    group.mkdir()
    try:
        (group / found[1]).write_text(str(400 << 20))
        (tmp_path / "mine.py").write_text(GREEDY.replace("PROCS", str(group / "cgroup.procs")))
        (tmp_path / "mine.yaml").write_text(SCENARIO)
        plan = build_plan(load(tmp_path / "mine.yaml"), "local")
        result = host.attempt(plan, tmp_path, lambda event: None)
    finally:
        group.rmdir()
    first = result.message.splitlines()[0]
    # version 2 of control groups counts a kill in all groups above the process, too; version 1 in its own alone
    counted = found[1] == "memory.max"
    how = "by the kernel, for want of memory" if counted else "while the kernel killed for want of memory"
    assert first in [f"east/worker0: mine.py:{line}: SIGKILL: the process was killed {how}" for line in (12, 13)]


# ---- parts ------------------------------------------------------------------------------------------------------


def test_what_a_dead_simulation_has_left_becomes_its_message(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    plan = build_plan(load(tmp_path / "mine.yaml"), "simulate")
    (tmp_path / "failures").mkdir()
    (tmp_path / "host.log").write_text("")
    assert session._reason(plan, tmp_path, -9, OomKills(None, None)) == (
        "the host process ended with signal 9: no output (see host.log)"
    )
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / ".simulation.place").write_bytes(b"east/worker0 7f00 mine.py:7".ljust(64, b"\0"))
    first, second = session._reason(plan, tmp_path, -9, OomKills.now()).splitlines()
    assert first == "east/worker0: mine.py:7: SIGKILL: the process was killed by itself or another process"
    assert (tmp_path / second.removeprefix("traceback: ")).read_text().startswith("mine.py:7: SIGKILL")
    assert [path.name for path in (tmp_path / "failures").iterdir()] == ["east.worker0.txt"]


def test_a_second_attempt_keeps_what_the_first_has_left(tmp_path: Path) -> None:
    files = FailureFiles(tmp_path / "failures", tmp_path / "mine.py")
    for text in ("first", "second", "third"):
        files.keep("a/worker0", Cause("mine.py:1", text))
        assert files.kept("a/worker0") == f"mine.py:1: {text}"
        files.begin("a/worker0")
    assert sorted(path.name for path in files.folder.iterdir()) == [f"a.worker0.{n}.txt" for n in (1, 2, 3)]


def test_whose_code_a_file_is() -> None:
    import numpy
    import torch

    assert is_users("/home/me/train.py") and is_users(__file__)
    assert is_users(str(Path(__file__).parents[2] / "scenarios" / "scripts" / "plain_pytorch.py"))
    assert not any(map(is_users, (os.__file__, torch.__file__, numpy.__file__, host.__file__, "<frozen importlib>")))


def test_the_text_of_an_error_may_be_anything(tmp_path: Path) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError

    for error, text in ((Unreadable(), "Unreadable: (its text cannot be read)"), (KeyError(), "KeyError")):
        try:
            raise error
        except Exception as caught:
            cause = cause_of(caught, Path(__file__))
        assert cause.what.endswith(text) and cause.place.startswith("test_failures.py:")


def test_errors_of_worker_processes_have_their_own_place(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\nfrom pathlib import Path\n"
        "from testbed.results.failures import cause_of\ndef work(n):\n    return 1 // n\n"
        "with ProcessPoolExecutor(1) as pool:\n    try:\n        list(pool.map(work, [0]))\n"
        "    except Exception as error:\n        print(cause_of(error, Path(__file__)))\n"
    )
    out = subprocess.run([sys.executable, tmp_path / "pool.py"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "pool.py:5: ZeroDivisionError: integer division or modulo by zero"


def test_the_thread_that_crashed_is_looked_at_first(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    dump = (
        "Fatal Python error: Aborted\n\nThread 0x000000000000abc1 (most recent call first):\n"
        f'  File "{script}", line 3 in a\n\n'
        f'Current thread 0x000000000000abc2 (most recent call first):\n  File "{os.__file__}", line 9 in b\n'
        f'  File "{script}", line 5 in c\n  File "{script}", line 6 in d\n'
    )
    assert place_in_dump(dump, script) == "mine.py:5"
    assert place_in_dump(dump, script, 0xABC1) == "mine.py:3"
    assert place_in_dump("", script) == ""


@pytest.mark.slow  # 3 s
def test_a_sweep_tells_which_script_ended_its_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KINDS["os._exit"].script("middle"))
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    words = ["sweep", str(tmp_path / "mine.yaml"), "--on", "simulate", "--out", str(tmp_path / "out"), "--set"]
    ended = command([*words, "training.rounds=1,4", "--jobs", "1"])
    assert ended.returncode == 4, ended.stdout + ended.stderr
    lines = (tmp_path / "out" / "sweep.csv").read_text()
    assert "east/worker0: mine.py:12: os._exit: the script ended its process, status 7" in lines
    assert lines.count(",done,") == 1, "in one round it does not come to the middle"
