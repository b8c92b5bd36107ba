"""Tables and bars on the terminal, shared by all verbs; ``testbed.numbers`` writes their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

PIPE_WIDTH = 110
AS_WRITTEN: dict[str, Any] = {"highlight": False, "markup": False}  # a user's text may have brackets: links[*].rate


def console() -> Console:
    """Return standard output; a pipe or a file is as wide as ``summary.txt``."""
    from rich.console import Console

    terminal = Console(**AS_WRITTEN)
    return terminal if terminal.is_terminal else Console(width=PIPE_WIDTH, **AS_WRITTEN)


def table(title: str, *columns: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    """Return a table; a column whose name starts with ``>`` is right-aligned."""
    from rich import box
    from rich.table import Table

    shown = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=any(column.lstrip(">") for column in columns),
    )
    for column in columns:
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        shown.add_row(*row)
    return shown


def progress_bar(unit: str) -> Progress:
    """Return a bar with the count, the elapsed time, and the field ``left`` of a task."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        TextColumn("{task.fields[left]}", markup=False),
        console=console(),
    )


def json_line(value: Any) -> str:
    """Return a value as JSON. NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
