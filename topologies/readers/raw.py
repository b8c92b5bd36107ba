"""A graph as a file holds it: texts by key, and the line of everything. What they mean is ``zoo.py``'s business."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RawVertex:
    """A vertex; ``key`` is what edges call it."""

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
    """All of a file. ``directed``: an edge is one direction only. ``default_unit``: of its rates."""

    vertices: list[RawVertex]
    edges: list[RawEdge]
    directed: bool = False
    default_unit: str = "bit/s"
    data: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
