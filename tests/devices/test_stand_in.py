"""Everything that needs a GPU, on a stand-in, in a process that has no other device and has not trained yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "stand_in_cases"


def run(*arguments: str, limit_s: float = 280) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


@pytest.mark.slow  # 11 s
def test_codecs_and_runs() -> None:
    """In one process, as PyTorch's start takes longer than any of these."""
    run(*(str(CASES / f"{name}.py") for name in ("codecs", "runs")))


@pytest.mark.slow  # 120 s
def test_all_techniques() -> None:
    run(str(CASES / "runs.py"), "-m", "slow", limit_s=1100)
