"""Runs in Jupyter: a table that follows a run, and results as HTML."""

from __future__ import annotations

import base64
import html
import io
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.display import look, state
from testbed.display.progress import Display, describe, one_line, site_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from testbed.plan.model import Plan

_EVERY_S = 0.25
_FORMAT = '<pre style="line-height:1.25;font-family:monospace;white-space:pre;overflow-x:auto">{code}</pre>'


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def as_output(figure: Figure) -> Figure:
    """Return ``figure``. In a notebook, see to it that figures are shown as pictures, as importing pyplot would do."""
    if is_notebook():
        from IPython import get_ipython
        from IPython.core.pylabtools import select_figure_formats
        from matplotlib.figure import Figure

        shell = get_ipython()
        if not any(Figure in formatter for formatter in shell.display_formatter.formatters.values()):
            select_figure_formats(shell, {"png"})
    return figure


def html_of(*parts: RenderableType, picture: Path | None = None) -> str:
    """Return tables and texts as HTML, followed by a PNG file if it exists."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=look.PIPE_WIDTH, force_jupyter=False, record=True, **look.AS_WRITTEN)
    console.print(*parts, sep="\n")
    text = console.export_html(inline_styles=True, code_format=_FORMAT)
    if picture is None or not picture.is_file():
        return text
    data = base64.b64encode(picture.read_bytes()).decode()
    return f'{text}<img alt="{html.escape(picture.stem)}" style="max-width:100%" src="data:image/png;base64,{data}">'


class NotebookTable(Display):
    """One row per data centre, replaced in place at most four times a second; removed at the end."""

    def __init__(self, plan: Plan) -> None:
        self._state, self._title = state.initial(plan), f"{plan.name} on {plan.back_end}"
        self._shown_s = 0.0
        self._warnings: list[str] = []

    def __enter__(self) -> NotebookTable:
        from IPython.display import HTML, display

        self._handle = display(HTML(self._html()), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        from IPython.display import HTML

        self._handle.update(HTML(html_of(*self._warnings) if self._warnings else ""))

    def show(self, event: Mapping[str, Any]) -> None:
        from IPython.display import HTML

        self._state.take(event)
        if event["kind"] in ("warning", "error"):
            self._warnings.append(describe(event))
        if time.monotonic() - self._shown_s >= _EVERY_S:
            self._handle.update(HTML(self._html()))
            self._shown_s = time.monotonic()

    def _html(self) -> str:
        return html_of(site_table(self._state, self._title), f"{self._state.stage}  {one_line(self._state)}")
