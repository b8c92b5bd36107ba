"""Each notebook twice: plain Python in the percent format, and the ``.ipynb`` that is made from it.

``python -m analysis.notebooks.pair`` writes them anew.
The Python file is the one to edit; Jupytext reads the same format. Notebooks are stored without outputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """The notebooks: Python files with cells."""
    return sorted(path for path in FOLDER.glob("*.py") if "\n# %%" in path.read_text())


def notebook(text: str) -> dict[str, Any]:
    """The percent format as a notebook of format 4.5. What stands before the first cell is the file's docstring."""
    _, *parts = text.split("\n# %%")
    cells = [_cell(number, part) for number, part in enumerate(parts)]
    return {"cells": cells, "metadata": {"kernelspec": _KERNEL, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}  # fmt: skip


def _cell(number: int, part: str) -> dict[str, Any]:
    kind, _, body = part.partition("\n")
    lines = body.strip("\n").splitlines(keepends=True)
    about: dict[str, Any] = {"id": f"cell-{number:02d}", "metadata": {}}
    if "[markdown]" in kind:
        plain = [line.removeprefix("#").removeprefix(" ") for line in lines]
        return {"cell_type": "markdown", **about, "source": plain}
    return {"cell_type": "code", **about, "execution_count": None, "outputs": [], "source": lines}


def as_json(path: Path) -> str:
    """What ``<name>.ipynb`` beside ``path`` has to hold."""
    return json.dumps(notebook(path.read_text()), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    for path in sources():
        path.with_suffix(".ipynb").write_text(as_json(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
