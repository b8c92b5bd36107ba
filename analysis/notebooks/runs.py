"""Small simulated runs for the notebooks: made by the command once, kept, and reused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from analysis.load import Run, load_run

ROOT = Path(__file__).parents[2]
SMALL = ("training.rounds=20", "training.evaluate_every=5", "training.target_accuracy=null",
         "training.model={kind: mlp, hidden: 32}")  # fmt: skip


def run(name: str, *settings: str, scenario: str = "scenarios/quickstart.yaml", on: str = "simulate",
        folder: Path = Path("notebook_runs")) -> Run:  # fmt: skip
    """The run ``<folder>/<name>``: made unless the very same plan has been run there. Raises if the command fails."""
    sets = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    out = folder.absolute() / name
    words = ["run", scenario, "--on", on, "--out", str(out), "--quiet", *sets]
    command = [sys.executable, "-m", "testbed.cli.main", *words]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    return load_run(out)
