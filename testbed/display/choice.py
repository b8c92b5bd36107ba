"""The choice of a display: JSON lines, nothing, a table in a notebook or on a terminal, or plain lines."""

from __future__ import annotations

import sys

from testbed.display.notebook import NotebookTable, is_notebook
from testbed.display.progress import Clock, Display, JsonLines, LiveTable, PlainLines
from testbed.plan.model import Plan


def choose(plan: Plan, *, as_json: bool, quiet: bool, clock: Clock) -> Display:
    """Return the display that fits standard output."""
    if as_json:
        return JsonLines(sys.stdout)
    if quiet:
        return Display()
    if is_notebook():
        return NotebookTable(plan)
    return LiveTable(plan, clock) if sys.stdout.isatty() else PlainLines(plan, sys.stdout, clock)
