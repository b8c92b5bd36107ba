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
    names = (
        "under_a_sparse_codec_no_round_copies_a_dense_tensor",
        "nodes_inherit_no_context",
    )
    runs = [f"{CASES / 'runs.py'}::test_{name}" for name in names]
    run(
        str(CASES / "codecs.py"),
        str(CASES / "optimizers.py"),
        *runs,
        f"{CASES / 'runs.py'}::test_a_gpu_changes_no_bits",
    )


@pytest.mark.slow  # 120 s
def test_all_techniques() -> None:
    run(str(CASES / "runs.py"), "-m", "slow", limit_s=1100)
