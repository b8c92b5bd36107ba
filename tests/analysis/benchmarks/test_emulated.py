"""Benchmarks of the emulation: their arithmetic, and short runs of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.benchmarks.links import row
from tests.emulation.inside import ROOT


def test_a_row_knows_its_tolerance() -> None:
    assert row("rate", "x", 1.0, 1.019, 0.019, 0.02, "")["ok"]
    assert not row("rate", "x", 1.0, 0.97, -0.03, 0.02, "")["ok"]


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "analysis.benchmarks", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, cwd=cwd, env=environment)


@pytest.mark.wallclock  # 13 s; measures rates, which other processes disturb
@pytest.mark.emulation
def test_the_contract_prints_rows_and_fails_outside(tmp_path: Path) -> None:
    arguments = [
        "links",
        "--links",
        "1",
        "--rates",
        "5",
        "--rtts",
        "20",
        "--losses",
        "0.05",
        "--packets",
        "20000",
        "--json",
    ]
    done = command(*arguments, "--congestion-control", "cubic", cwd=tmp_path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["what"] for row in rows] == ["rate", "rtt p50", "rtt p99", "loss"]
    assert all(abs(row["error"]) <= 2 * row["tolerance"] for row in rows), rows  # a busy machine may miss it by a bit
