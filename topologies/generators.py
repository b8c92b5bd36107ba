"""Shapes of wide-area networks: pure functions to networkx graphs, from small frozen options.

A vertex is a data centre (or router); an edge has ``rate_bps`` and ``delay_s`` (one way) and counts for both
directions. The graph's ``central`` names the data centre that holds the global server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import networkx as nx

_SITES = {"help": "data centres, the central one included", "min": 2, "max": 10_000}
_WORKERS = {"help": "workers in each data centre", "min": 1, "max": 1000}
_RATE = {"help": "rate of every WAN link, each way", "unit": "bit/s"}
_DELAY = {"help": "one-way delay of every WAN link", "unit": "s"}


@dataclass(frozen=True, slots=True)
class Star:
    """Every data centre has one link to the central one, ``dc0``."""

    data_centers: int = field(default=3, metadata=_SITES)
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    delay: float = field(default=0.04, metadata=_DELAY)


@dataclass(frozen=True, slots=True)
class Mesh:
    """Every pair of data centres has a link of its own; ``dc0`` is the central one."""

    data_centers: int = field(default=3, metadata={**_SITES, "max": 200})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    delay: float = field(default=0.04, metadata=_DELAY)


def star(options: Star) -> nx.Graph[str]:
    """``dc0`` in the middle, ``dc1`` … around it."""
    names = _names(options.data_centers)
    return _graph(options, [(names[0], name) for name in names[1:]])


def mesh(options: Mesh) -> nx.Graph[str]:
    """All pairs of ``dc0``, ``dc1``, …."""
    return _graph(options, list(combinations(_names(options.data_centers), 2)))


def _names(count: int) -> list[str]:
    return [f"dc{number}" for number in range(count)]


def _graph(options: Star | Mesh, edges: list[tuple[str, str]]) -> nx.Graph[str]:
    graph: nx.Graph[str] = nx.Graph(central="dc0")
    graph.add_nodes_from(_names(options.data_centers), workers=options.workers)
    graph.add_edges_from(edges, rate_bps=options.rate, delay_s=options.delay)
    return graph


GENERATORS = {"star": Star, "mesh": Mesh}
BUILDERS: dict[str, Any] = {"star": star, "mesh": mesh}
