"""Pieces of HTML. What is given as ``html`` is markup already; everything else is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def card(title: str, note: str, html: str, *, wide: bool = False) -> str:
    """A figure with its title; ``note`` may hold markup."""
    caption = f"<figcaption>{note}</figcaption>" if note else ""
    return f"<figure class='card{' wide' if wide else ''}'><h3>{escape(title)}</h3>{caption}{html}</figure>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Large values (markup) over what they mean."""
    shown = "".join(f"<div class='fact'><b>{value}</b><span>{escape(name)}</span></div>" for value, name in rows)
    return f"<div class='facts'>{shown}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are markup; a column whose name starts with ``>`` is set to the right."""
    sides = [" class='n'" if name.startswith(">") else "" for name in head]
    top = "".join(f"<th{side}>{escape(name.lstrip('>'))}</th>" for side, name in zip(sides, head, strict=True))
    lines = ["".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def badge(state: str) -> str:
    return f"<span class='badge {escape(state)}'>{escape(state)}</span>"
