"""Every notebook runs from top to bottom in a real Jupyter kernel, and its assertions hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.for_each import for_each

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow  # 13 to 24 s each
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Path(sys.executable).parent  # `testbed` in shell cells
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=250, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs and not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.output_type == "stream" and "FAIL" in output.text]
    calls = sum(".figure()" in cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= calls
    summaries = [file.read_text(encoding="utf-8") for file in tmp_path.glob("runs/*/summary.txt")]
    assert all("fidelity" in text for text in summaries)
    assert _shown_twice(outputs) == []


def _shown_twice(outputs: list[Any]) -> list[str]:
    """Return tables that are an output of their own and part of a cell's result, too."""
    results = [output["data"].get("text/html", "") for output in outputs if output.output_type == "execute_result"]
    shown = [output["data"].get("text/html", "") for output in outputs if output.output_type == "display_data"]
    tables = [html.partition(">")[2].rpartition("</pre>")[0] for html in shown]
    return [table for table in tables if len(table) > 200 and any(table in result for result in results)]


@for_each("path", NOTEBOOKS)
def test_it_is_stored_with_the_outputs_of_one_execution(path: Path) -> None:
    import nbformat

    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs and not [output for output in outputs if output.output_type == "error"]
