"""Shortest paths of a network: least delay, or fewest links and then least delay; equal ones are shared out.

Where several paths are equally short (a fat tree), which one a pair takes is drawn from the pair's name, as a switch
does with a hash of the addresses (ECMP, RFC 2992); so it is the same in every run.
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
        """The vertices from the origin to ``vertex`` (backwards: from ``vertex`` to the origin)."""
        found = [vertex]
        while found[-1] != self._origin:
            before = self._before[found[-1]]
            if len(before) > 1:
                draw = zlib.crc32(f"{self._origin}>{vertex}@{found[-1]}".encode())
                before = [sorted(before)[draw % len(before)]]
            found.append(before[0])
        return found if self._backwards else found[::-1]


def weight(delay_s: float, routing: str) -> int:
    """What one link costs. Whole numbers, so that equal paths are equal; of equal delays, fewer links win."""
    nanoseconds = round(delay_s * 1e9)
    return _HOP + nanoseconds if routing == "hops" else (nanoseconds << 16) + 1
