"""Kill any process of an exact run at random moments: no process, mount or temporary file may be left.

``python -m tests.emulation.exact.deaths --moments 20``, as root. Folders for temporary files are empty at first, and
processes whose parent has ended come to this process.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.results import FINISHED
from tests.emulation.exact.test_runs import SHORT, command

TEMPORARY = ("/dev/shm", "/tmp", "/var/tmp")
PR_SET_CHILD_SUBREAPER = 36
LATEST_S = 40.0  # by then a run has ended
GONE_WITHIN_S = 20.0


def below(parent: int) -> list[int]:
    """Return all processes below ``parent`` that have not ended."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for pid, ppid, state in (line.split() for line in table.splitlines()):
        if not state.startswith("Z"):
            children.setdefault(int(ppid), []).append(int(pid))
    found, unseen = [], [parent]
    while unseen:
        unseen += (of := children.get(unseen.pop(), []))
        found += of
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]  # without ps itself


def state() -> tuple[tuple[str, ...], str]:
    """Return all temporary files and the mounts."""
    files = [str(path) for place in TEMPORARY for path in sorted(Path(place).rglob("*"))]
    return tuple(files), Path("/proc/self/mounts").read_text()


def strike(folder: Path, draw: random.Random) -> str:
    """Run, kill one process at a random moment, and return what is wrong then; empty if nothing is."""
    before, moment_s = state(), draw.uniform(0, LATEST_S)
    launcher = subprocess.Popen(
        command("quickstart", *SHORT),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end_s = time.monotonic() + moment_s
    while time.monotonic() < end_s and launcher.poll() is None:
        time.sleep(0.05)
    if not (processes := below(os.getpid())):
        return "had ended"
    victim = draw.choice(processes)
    name = Path(f"/proc/{victim}/comm").read_text().strip()
    os.kill(victim, signal.SIGKILL)
    code = launcher.wait(120)
    end_s = time.monotonic() + GONE_WITHIN_S
    while left := below(os.getpid()):
        if time.monotonic() > end_s:
            return f"killed {name!r} after {moment_s:.1f} s: processes {left} are left"
        time.sleep(0.05)
    if (after := state()) != before:
        return f"killed {name!r} after {moment_s:.1f} s: left {set(after[0]) ^ set(before[0]) or 'mounts'}"
    file = folder / "run" / "status.json"
    status = json.loads(file.read_text())["state"] if file.exists() else "none"
    if victim != launcher.pid and status not in FINISHED:
        return f"killed {name!r} after {moment_s:.1f} s: status {status}"
    print(f"killed {name!r} after {moment_s:.1f} s: code {code}, status {status}, nothing left", flush=True)
    return ""


def inside(moments: int, seed: int) -> int:
    """Kill in folders of this process' own. Return how often something was left."""
    for place in TEMPORARY:
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    assert ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    draw, struck, wrong = random.Random(seed), 0, 0
    while struck < moments:
        with tempfile.TemporaryDirectory(dir="/var/cache", prefix="exact-deaths-") as folder:
            said = strike(Path(folder), draw)
        if said != "had ended":
            struck, wrong = struck + 1, wrong + bool(said)
        if said:
            print(said, flush=True)
    print(f"{struck} moments, {wrong} times something was left")
    return wrong


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.inside:
        return min(1, inside(given.moments, given.seed))
    again = [sys.executable, "-m", "tests.emulation.exact.deaths", "--inside", *argv]
    return subprocess.run(["unshare", "--mount", "--propagation", "private", *again], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
