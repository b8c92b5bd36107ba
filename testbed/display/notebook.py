"""Results in Jupyter, as HTML and as pictures."""

from __future__ import annotations

import base64
import html
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.display import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_FORMAT = '<pre style="line-height:1.25;font-family:monospace;white-space:pre;overflow-x:auto">{code}</pre>'


@dataclass(frozen=True)
class Widget:
    """A page in a frame of a notebook. It needs no server, as ``page`` is HTML that includes everything."""

    page: str = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        size = f'width="100%" height="{self.height}" style="border:0"'
        return f'<iframe srcdoc="{html.escape(self.page)}" title="testbed view" {size}></iframe>'


def is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def as_output(figure: Figure) -> Figure:
    """Return ``figure``. In a notebook, make sure that figures are shown as pictures, as importing pyplot would do."""
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
