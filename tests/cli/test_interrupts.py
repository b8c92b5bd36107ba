"""Ctrl-C and SIGTERM, once and often, against the real command in its own process (its session only lingers)."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = """
import sys, time
from pathlib import Path
from testbed.execution import session
from tests.results.fake_run import fake_session, make_plan

def lingering(plan, directory, on_progress):
    fake_session(make_plan(back_end="local"), directory, on_progress)
    print("training", flush=True)
    time.sleep(60)

session.run = lingering
from testbed.cli.main import main
sys.exit(main(["run", "scenarios/quickstart.yaml", "--on", "local", "--quiet", "--out", sys.argv[1]]))
"""


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COMMAND, str(out)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "training\n"
    return run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_ends_the_run_with_its_results(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = start(tmp_path / "run")
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == code
    assert said == "testbed: interrupted; the results so far are kept\n"
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["status"], result["accuracy"]) == ("interrupted", pytest.approx(0.9305))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"


def test_impatience_costs_nothing_but_what_can_be_made_later(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    for _ in range(12):
        run.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in said
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    assert not list((tmp_path / "run").rglob("*.tmp"))
