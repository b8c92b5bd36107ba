"""kill -9 of the launcher at any moment leaves nothing on the machine, and results are absent or whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.runs import QUICKSTART
from tests.end_to_end.test_three_worlds import skip_unless_possible

GONE_WITHIN_S = 240.0
MOMENTS = [random.Random(seed).uniform(0.5, 12.0) for seed in (1, 0, 2)]


def processes_of(run: Path) -> list[str]:
    """Command lines, or names of forked children, of all processes that have to do with a run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(run) in command:
            found.append(f"{entry.name}: {command}")
    return found


def network_state() -> tuple[set[str], set[str]]:
    """Interfaces and named namespaces of the machine itself."""
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout.split("\n")
    return {path.name for path in Path("/sys/class/net").iterdir()}, {name for name in names if name}


def namespaces(pids: list[int] | None = None) -> set[str]:
    """Network namespaces that these processes (default: all of this machine) live in."""
    links = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if pids is None or int(entry.name) in pids:
                links.add(str((entry / "ns" / "net").readlink()))
        except OSError:
            continue
    return links


def made_by(launcher: int) -> set[str]:
    """Network namespaces that a run has made so far."""
    family = [process.pid for process in psutil.Process(launcher).children(recursive=True)]
    return namespaces(family) - namespaces([os.getpid()])


@pytest.mark.emulation
# up to 20 s each; one by default
@pytest.mark.parametrize("moment", [MOMENTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in MOMENTS[1:])])
def test_nothing_is_left_of_an_emulated_run(tmp_path: Path, moment: float) -> None:
    skip_unless_possible("emulate")
    before = network_state()
    run = tmp_path / "run"
    command = [sys.executable, "-m", "testbed.cli.main", "run", str(QUICKSTART), "--out", str(run), "--quiet"]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(moment)
    assert launcher.poll() is None, "the run ended before it was killed"
    made = made_by(launcher.pid)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    deadline = time.monotonic() + GONE_WITHIN_S
    while (processes_of(run) or namespaces() & made) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(run) == []
    assert namespaces() & made == set()
    assert network_state() == before
    result = run / "result.json"
    assert not result.exists() or json.loads(result.read_text())["status"]
