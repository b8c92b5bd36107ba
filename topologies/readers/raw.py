"""The uninterpreted content of a graph file: texts by key, and the line of each vertex and edge. See ``zoo.py``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RawVertex:
    """A vertex. ``key``: its id, by which edges refer to it."""

    key: str
    line: int
    data: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RawEdge:
    """An edge between two vertices, given by their keys."""

    source: str
    target: str
    line: int
    data: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RawGraph:
    """The graph of a file. ``directed``: an edge is only one direction of a link. ``default_unit``: of its rates."""

    vertices: list[RawVertex]
    edges: list[RawEdge]
    directed: bool = False
    default_unit: str = "bit/s"
    notes: list[str] = field(default_factory=list)
