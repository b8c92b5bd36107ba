"""Every notebook runs from top to bottom, as it stands, and its assertions hold; both of its forms say the same."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.notebooks.pair import as_json, sources

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sources()


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_other_form_was_made_from_it(path: Path) -> None:
    stored = path.with_suffix(".ipynb").read_text()
    assert stored == as_json(path), "run: python -m analysis.notebooks.pair"
    content = json.loads(stored)
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    code = "".join("".join(cell["source"]) + "\n" for cell in content["cells"] if cell["cell_type"] == "code")
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(path.read_text().split("\n# %%", 1)[1].partition("\n")[2]))


def test_the_own_algorithm_is_one_short_file() -> None:
    source = (ROOT / "analysis" / "notebooks" / "one_by_one.py").read_text()
    assert len(source.splitlines()) <= 50
