"""A graph as a file holds it: texts by key, and the line of every vertex and edge. ``zoo.py`` interprets them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RawVertex:
    """A vertex; ``key`` is its id in edges."""

    key: str
    line: int
    data: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RawEdge:
    """An edge between two keys."""

    source: str
    target: str
    line: int
    data: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RawGraph:
    """A whole file. ``directed``: an edge is one direction only. ``default_unit``: of its rates."""

    vertices: list[RawVertex]
    edges: list[RawEdge]
    directed: bool = False
    default_unit: str = "bit/s"
    notes: list[str] = field(default_factory=list)
