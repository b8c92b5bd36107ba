"""Format tables and numbers for the terminal, once for all verbs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

PIPE_WIDTH = 110
NONE = "-"


def console() -> Console:
    """Return standard output; a pipe or a file is as wide as ``summary.txt``."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def table(title: str, *columns: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    """Return a table; a column whose name starts with ``>`` is right-aligned."""
    from rich import box
    from rich.table import Table

    shown = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
                  show_header=any(column.lstrip(">") for column in columns))  # fmt: skip
    for column in columns:
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        shown.add_row(*row)
    return shown


def progress_bar(estimate: str, unit: str = "") -> Progress:
    """Return a bar with the count, elapsed and remaining time; ``estimate`` is the word before the latter."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=36), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(), TextColumn(f"elapsed, {estimate}"), Remaining(), TextColumn("left"),
    )  # fmt: skip


def seconds(value: float | None) -> str:
    """Format with three significant digits, in s or ms."""
    if value is None:
        return NONE
    if value and abs(value) < 0.9995:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if abs(value) < 100 else f"{value:.0f} s"


def size(value: float | None) -> str:
    """Format bytes with a decimal prefix."""
    if value is None:
        return NONE
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}B" if value / factor < 100 else f"{value / factor:.0f} {prefix}B"
    return f"{value:.0f} B"


def three(value: float) -> str:
    """Format with three significant digits, and with all digits before the point."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def share(value: float | None, digits: int = 1) -> str:
    """Format a share in per cent."""
    return NONE if value is None else f"{value * 100:.{digits}f} %"


def number(value: float | None, form: str = ".4f") -> str:
    return NONE if value is None else format(value, form)
