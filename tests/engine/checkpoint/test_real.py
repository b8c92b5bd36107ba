"""The command, over real sockets: killed with SIGKILL while it trains, resumed, and the same bits at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.results.events import read
from tests.cli import forked
from tests.engine.runs import THREE_SITES

JOB = (
    "--set",
    "training.model={kind: mlp, hidden: 32}",
    "--set",
    "training.rounds=40",
    "--set",
    "training.evaluate_every=20",
    "--set",
    "checkpoint.every=4",
    "--on",
    "local",
    "--quiet",
)


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "testbed.cli.main", "run", str(THREE_SITES), *JOB, "--out", str(out), *more]


def wait_for(directory: Path, count: int) -> None:
    end_s = time.monotonic() + 240
    while len(list(directory.glob("ckpt-*"))) < count:
        assert time.monotonic() < end_s, "no checkpoint in time"
        time.sleep(0.05)


def result(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "result.json").read_text())
    return found


@pytest.mark.slow  # 39 s
def test_kill_and_resume(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole"), check=True, timeout=240, stdout=subprocess.DEVNULL)
    killed = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL)
    wait_for(tmp_path / "killed" / "checkpoints", 2)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(240) == -signal.SIGKILL
    resume = command(tmp_path / "resumed", "--resume", str(tmp_path / "killed"))
    subprocess.run(resume, check=True, timeout=240, stdout=subprocess.DEVNULL)
    assert result(tmp_path / "resumed")["parameters_sha256"] == result(tmp_path / "whole")["parameters_sha256"]
    first = min(
        event["round"] for event in read(tmp_path / "resumed" / "events", "hub/worker0") if event["kind"] == "round"
    )
    assert first >= 8


def newest(directory: Path) -> int:
    """The number of the newest checkpoint, 0 if there is none."""
    return max((int(path.name.removeprefix("ckpt-")) for path in directory.glob("ckpt-*")), default=0)


@pytest.mark.slow  # 68 s
def test_ten_kills_at_random_moments(tmp_path: Path) -> None:
    """Each run goes on from where the one before it was killed; the last one ends with the undisturbed run's bits."""
    every, chance = ("--set", "checkpoint.every=1"), random.Random(11)
    subprocess.run(command(tmp_path / "whole", *every), check=True, timeout=240, stdout=subprocess.DEVNULL)
    resume: tuple[str, ...] = ()
    done = 0
    for number in range(10):
        out = tmp_path / str(number)
        killed = subprocess.Popen(command(out, *every, *resume), stdout=subprocess.DEVNULL)
        goal, end_s = done + chance.randrange(1, 4), time.monotonic() + 240
        while newest(out / "checkpoints") < goal:
            assert time.monotonic() < end_s and killed.poll() is None, "no checkpoint in time"
            time.sleep(0.01)
        time.sleep(chance.random() * 0.15)  # somewhere in a round of 0.1 s and more
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.wait(240) == -signal.SIGKILL
        done, resume = newest(out / "checkpoints"), ("--resume", str(out))
    assert 10 <= done < 40
    last = command(tmp_path / "last", *every, *resume)
    subprocess.run(last, check=True, timeout=240, stdout=subprocess.DEVNULL)
    assert result(tmp_path / "last")["parameters_sha256"] == result(tmp_path / "whole")["parameters_sha256"]


def test_what_cannot_be_resumed_is_said_before_anything_is_made(tmp_path: Path) -> None:
    done = forked.command(command(tmp_path / "new", "--resume", str(tmp_path / "none"))[3:])
    assert done.returncode == 2
    assert "none: there is no such folder" in done.stderr
    assert not (tmp_path / "new").exists()
