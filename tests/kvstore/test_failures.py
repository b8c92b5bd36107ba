"""The cause of any failure of a script is the run's message, with node, file and line; its traceback is kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.execution import session
from testbed.plan.build import build_plan
from testbed.results.failures import FailureFiles
from testbed.results.oom_kills import OomKills
from testbed.scenario.load import load
from tests.kvstore.failing import CASES, SCENARIO, assert_named, run_failing


@pytest.mark.slow  # 30 s; drawn of a hundred
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


# ---- parts ------------------------------------------------------------------------------------------------------


def test_what_a_dead_simulation_has_left_becomes_its_message(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    plan = build_plan(load(tmp_path / "mine.yaml"), "simulate")
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / ".simulation.place").write_bytes(b"east/worker0 7f00 mine.py:7".ljust(64, b"\0"))
    first, second = session._reason(plan, tmp_path, -9, OomKills.now()).splitlines()
    assert first == "east/worker0: mine.py:7: SIGKILL: the process was killed by itself or another process"
    assert (tmp_path / second.removeprefix("traceback: ")).read_text().startswith("mine.py:7: SIGKILL")
    assert [path.name for path in (tmp_path / "failures").iterdir()] == ["east.worker0.txt"]


@pytest.mark.parametrize(
    ("script", "helper", "first"),
    [
        ("import os\nos._exit(0)\n", "", "mine.py:2: os._exit: the script ended its process, status 0"),
        (
            "from os import _exit\nif x:\n    _exit(0)\nThread(target=_exit)\n",
            "",
            "mine.py:3 or mine.py:4: os._exit: the script ended its process, status 0",
        ),
        (
            "",
            "import os\ndef end():\n    os._exit(0)\n",
            "helper.py:3: os._exit: the script ended its process, status 0",
        ),
        ("print('_exit')\n", "", "helper.py:1: exit status 0: the process ended without a message"),
    ],
)
def test_where_a_script_may_have_ended_its_process_is_in_its_text(
    tmp_path: Path, script: str, helper: str, first: str
) -> None:
    (tmp_path / "mine.py").write_text(script)
    (tmp_path / "helper.py").write_text(helper)
    files = FailureFiles(tmp_path, tmp_path / "mine.py")
    files.hidden("simulation", "place").write_bytes(b"east/worker0 7f00 helper.py:1".ljust(64, b"\0"))
    assert files.explain("simulation", 0, OomKills.now()) == ("east/worker0", first)
    assert files.of_node("east/worker0").read_text() == f"{first}\n\nlast seen at helper.py:1\n"
