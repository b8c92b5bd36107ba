"""Runs every scenario of a folder, one after the other, and compares them.

python -m analysis.experiments.synchronisation OUT [--on emulate] [--scenarios scenarios/sync]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

LIMIT_S = 1800.0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "testbed.cli.main", *words]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="run directories and the comparison go here; finished runs are kept")
    parser.add_argument("--on", default="emulate", choices=("emulate", "simulate", "local"))
    parser.add_argument("--scenarios", type=Path, default=Path("scenarios/sync"))
    chosen = parser.parse_args()
    runs = []
    for path in sorted(chosen.scenarios.glob("*.yaml")):
        runs.append(str(chosen.out / chosen.on / path.stem))
        words = ("run", str(path), "--on", chosen.on, "--out", runs[-1], "--quiet")
        subprocess.run(command(*words), check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
    base = next((run for run in runs if run.endswith("fsa")), runs[0])
    others = [run for run in runs if run != base]
    comparison = str(chosen.out / f"comparison-{chosen.on}")
    return subprocess.run(
        command("compare", base, *others, "--out", comparison), check=False, timeout=LIMIT_S
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
