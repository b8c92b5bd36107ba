"""Everything that needs a GPU, on a stand-in, in a process that has no other device and has not trained yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "stand_in_cases"


def run(*arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    result = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_codecs_copy_payloads_only_and_streams_are_in_order() -> None:
    run(str(CASES / "strictness.py"), str(CASES / "codecs.py"))


def test_runs_copy_no_dense_tensor_and_keep_their_bits() -> None:
    run(str(CASES / "runs.py"), "-k", "sparse_codec or topk or manifest")


def test_forked_nodes_inherit_no_context() -> None:
    run(str(CASES / "runs.py"), "-k", "inherit")


@pytest.mark.slow  # 130 s
def test_all_techniques() -> None:
    run(str(CASES / "runs.py"), "-m", "slow or not slow")
