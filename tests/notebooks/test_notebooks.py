"""Every notebook runs from top to bottom, as it stands, and its assertions hold."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(path for path in (ROOT / "analysis" / "notebooks").glob("*.py") if "# %%" in path.read_text())


def test_there_are_four() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["comparing", "first_look", "own_algorithm", "simulated_emulated"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_in_the_percent_format(path: Path) -> None:
    cells = path.read_text().split("\n# %%")
    assert cells[1].startswith(" [markdown]\n# # ")
    for cell in cells[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" in kind:
            assert all(line.startswith("#") for line in body.strip().splitlines()), body
        else:
            ast.parse(body)


def test_the_own_algorithm_is_short() -> None:
    source = (ROOT / "analysis" / "notebooks" / "own_algorithm.py").read_text()
    (policy,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert policy.end_lineno - policy.lineno + 1 <= 50  # type: ignore[operator]
