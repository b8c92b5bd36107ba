"""Shortest paths of a network: least delay, or fewest links and then least delay.

Among equally short paths (in a fat tree) a hash of the pair's names chooses, as switches hash addresses (ECMP,
RFC 2992), so that every run has the same paths.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import networkx as nx

ROUTINGS = ("delay", "hops")
_HOP = 1 << 60  # more than any sum of delays in nanoseconds


class Paths:
    """Paths from one vertex to all, or (``backwards``) from all to one."""

    def __init__(self, edges: Iterable[tuple[str, str, float]], origin: str, routing: str, backwards: bool) -> None:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_node(origin)
        for source, target, delay_s in edges:
            ends = (target, source) if backwards else (source, target)
            graph.add_edge(*ends, weight=weight(delay_s, routing))
        self._origin, self._backwards = origin, backwards
        self._before: dict[str, list[str]] = nx.dijkstra_predecessor_and_distance(graph, origin)[0]

    def __contains__(self, vertex: str) -> bool:
        return vertex in self._before

    def path(self, vertex: str) -> list[str]:
        """Return the vertices from the origin to ``vertex`` (backwards: from ``vertex`` to the origin)."""
        found = [vertex]
        while found[-1] != self._origin:
            before = self._before[found[-1]]
            if len(before) > 1:
                draw = zlib.crc32(f"{self._origin}>{vertex}@{found[-1]}".encode())
                before = [sorted(before)[draw % len(before)]]
            found.append(before[0])
        return found if self._backwards else found[::-1]


def weight(delay_s: float, routing: str) -> int:
    """Return the cost of one link: a whole number, so that equal paths are equal. Of equal delays, fewer links win."""
    nanoseconds = round(delay_s * 1e9)
    return _HOP + nanoseconds if routing == "hops" else (nanoseconds << 16) + 1
