"""A small sweep, on this machine and on a cluster, and what can be seen of it from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tests.cluster.raylets import Machine, Raylets

SMALL = (
    "version: 1\nname: small\nseed: 1\nrun: {on: simulate}\n"
    "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
    "  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]\n"
    "training: {model: {kind: mlp, hidden: 8}, data: digits, rounds: 4, evaluate_every: 2}\n"
)
MINE = "sync: {kind: './mine.py:Mine', k1: 2}\noptimizer: {kind: adam, at: worker}\n"
CODE = '''
from testbed.policy.sync.hfa import Hfa


class Mine(Hfa):
    """Hierarchical, under another name."""
'''
GRID = ("--set", "codec=none,fp16", "--set", "training.batch=8,16", "--seeds", "3")
POINTS = 12


def sweep(scenario: Path, out: Path, *more: str) -> list[str]:
    """The command of a sweep of ``POINTS`` runs."""
    return [sys.executable, "-m", "testbed.cli.main", "sweep", str(scenario), "--out", str(out), *GRID, *more]


def begin(cluster: Raylets, command: list[str], output: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Give the command on the head of the cluster. ``output``: a file, for who reads while it runs."""
    command = [*command, "--cluster", cluster.address]
    return cluster.driver(command, stdout=output, stderr=subprocess.STDOUT)


def end(process: subprocess.Popen[str], limit_s: float = 240) -> str:
    """What the command says, which must succeed."""
    try:
        output, _ = process.communicate(timeout=limit_s)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output or ""


def done(out: Path) -> dict[str, int]:
    """The finished runs, and when they were finished; a sweep that has ended has links to them, too."""
    found = {}
    for path in out.glob("runs/*/status.json"):
        if not path.parent.is_symlink() and json.loads(path.read_text())["state"] == "done":
            found[path.parent.name] = path.stat().st_mtime_ns
    return found


def places(out: Path) -> dict[str, str]:
    """The machine of each run, from its manifest."""
    return {
        path.parent.name: json.loads(path.read_text())["capabilities"]["cluster"]["machine"]
        for path in out.glob("runs/*/manifest.json")
    }


def wait_until(happened: Callable[[], object], limit_s: float = 120) -> None:
    """Look every 50 ms."""
    deadline_s = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline_s, "it has not happened"
        time.sleep(0.05)


def left_on(machine: Machine) -> list[str]:
    """Processes and files of sweeps on a machine."""
    words = ("testbed.execution", "ray::testbed")
    processes = [text for text in machine.processes().values() if any(word in text for word in words)]
    return [*processes, *(path for path in machine.disk() if path.startswith("testbed"))]
