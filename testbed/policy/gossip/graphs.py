"""Graphs of workers: for each rank its neighbours, in ascending order. Undirected; no rank is its own neighbour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import pairwise
from math import isqrt
from typing import Any

Graph = tuple[tuple[int, ...], ...]


def given(size: int, edges: Iterable[tuple[int, int]]) -> Graph:
    """Return the graph with these edges, each in both directions."""
    neighbours: list[set[int]] = [set() for _ in range(size)]
    for a, b in edges:
        if a != b:
            neighbours[a].add(b)
            neighbours[b].add(a)
    return tuple(tuple(sorted(some)) for some in neighbours)


def ring(size: int) -> Graph:
    """Join each rank with the next."""
    return given(size, ((rank, (rank + 1) % size) for rank in range(size)))


def torus(size: int) -> Graph:
    """A grid as square as possible, closed in both directions; with a prime number of ranks, a ring."""
    rows = max(rows for rows in range(1, isqrt(size) + 1) if size % rows == 0)
    columns = size // rows
    along = ((rank, rank // columns * columns + (rank + 1) % columns) for rank in range(size))
    across = ((rank, (rank + columns) % size) for rank in range(size))
    return given(size, (*along, *across))


def exponential(size: int) -> Graph:
    """Join each rank with those 1, 2, 4, … ranks away."""
    return given(size, ((rank, (rank + hop) % size) for rank in range(size) for hop in hops(size)))


def complete(size: int) -> Graph:
    """Join each rank with all others."""
    return given(size, ((a, b) for a in range(size) for b in range(a)))


@cache
def matching(size: int) -> Graph:
    """Join each rank with all others; in a round it has one of them as a random partner (``mixing.RandomPairs``)."""
    return complete(size)


def hops(size: int) -> tuple[int, ...]:
    """1, 2, 4, … below ``size``."""
    return tuple(1 << power for power in range(max(0, (size - 1).bit_length())))


GRAPHS: dict[str, Callable[[int], Graph]] = {
    "ring": ring,
    "torus": torus,
    "exponential": exponential,
    "complete": complete,
    "matching": matching,
}


@lru_cache(maxsize=16)
def is_connected(graph: Graph) -> bool:
    """Return whether every vertex is reachable from every other; otherwise models cannot converge to one average."""
    nx = _networkx()
    return bool(nx.is_connected(nx.from_dict_of_lists(dict(enumerate(graph)))))


def joined_up(graph: Graph) -> Graph:
    """Return the graph with its components connected: an edge joins the first ranks of each component and the next."""
    nx = _networkx()
    firsts = sorted(min(some) for some in nx.connected_components(nx.from_dict_of_lists(dict(enumerate(graph)))))
    edges = [(rank, other) for rank, some in enumerate(graph) for other in some]
    return given(len(graph), (*edges, *pairwise(firsts)))


def two_sides(graph: Graph) -> tuple[bool, ...] | None:
    """Return a side for each rank so that every edge joins both sides; ``None`` if the graph is not bipartite."""
    nx = _networkx()
    try:
        sides = nx.bipartite.color(nx.from_dict_of_lists(dict(enumerate(graph))))
    except nx.NetworkXError:
        return None
    return tuple(bool(sides[rank]) for rank in range(len(graph)))


def _networkx() -> Any:
    """Import networkx only on use: that takes 0.15 s, and few of the nodes that import this module need it."""
    import networkx

    return networkx
