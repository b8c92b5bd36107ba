"""Extension of Griffe: parameters that a docstring lists in columns become a list of the page."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROW = re.compile(r"^(?P<name>\w[\w.*, ]*?) {2,}(?P<words>\S.*)$")


def as_list(text: str) -> str:
    """Return a docstring with each paragraph of two columns as a Markdown list."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in text.replace("``", "`").split("\n\n"))


def _paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if not lines or not ROW.match(lines[0]):
        return paragraph
    rows = []
    for line in lines:
        row = ROW.match(line)
        rows.append(f"* `{row['name']}`: {row['words']}" if row else f"  {line.strip()}")
    return "\n".join(rows)


class Columns(Extension):
    """Rewrite every docstring that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_list(obj.docstring.value)
