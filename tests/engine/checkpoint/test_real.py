"""The command, over real sockets: killed with SIGKILL while it trains, resumed, and the same bits at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.runs import THREE_SITES

JOB = ("--set", "training.model={kind: mlp, hidden: 8}", "--set", "training.iterations=40", "--set",
       "training.evaluate_every=20", "--set", "checkpoint.every=4", "--on", "local", "--quiet")  # fmt: skip


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "testbed.cli.main", "run", str(THREE_SITES), *JOB, "--out", str(out), *more]


def wait_for(directory: Path, count: int) -> None:
    end_s = time.monotonic() + 60
    while len(list(directory.glob("ckpt-*"))) < count:
        assert time.monotonic() < end_s, "no checkpoint in time"
        time.sleep(0.05)


def result(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "result.json").read_text())
    return found


@pytest.mark.timeout(280)
def test_kill_and_resume(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole"), check=True, timeout=120, stdout=subprocess.DEVNULL)
    killed = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL)
    wait_for(tmp_path / "killed" / "checkpoints", 2)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(30) == -signal.SIGKILL
    resume = command(tmp_path / "resumed", "--resume", str(tmp_path / "killed"))
    subprocess.run(resume, check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert result(tmp_path / "resumed")["parameters_sha256"] == result(tmp_path / "whole")["parameters_sha256"]
    first = min(
        json.loads(line)["round"]
        for line in (tmp_path / "resumed" / "events" / "hub.worker0.jsonl").read_text().splitlines()
        if json.loads(line)["kind"] == "round"
    )
    assert first >= 8


def test_what_cannot_be_resumed_is_said_before_anything_is_made(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "new", "--resume", str(tmp_path / "none")), check=False, timeout=60,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2
    assert "holds no checkpoint" in done.stderr
    assert not (tmp_path / "new").exists()
