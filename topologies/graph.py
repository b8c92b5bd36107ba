"""Annotated graphs: the vertices and directed edges of a wide-area network, its paths, and distances on the globe.

A vertex is a data centre (``workers`` is a number) or a router (``workers`` is ``None``). It may have ``latitude`` and
``longitude`` in degrees, or coordinates ``xy`` on a plane, for figures. An edge is one direction of a link, with
``rate_bps``, ``delay_s`` (one way), ``loss`` (share) and ``queue`` (a text such as ``50 ms``, or ``None`` for the
default). The graph has the attributes ``central``, the data centre of the global server, and ``routing``: by ``delay``,
or by ``hops`` and then delay. The latter is for measured pairs: the link of a pair represents the measured path, even
if a detour would be shorter.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import networkx as nx

from testbed.ids import MAX_NAME

Graph = nx.DiGraph
EARTH_RADIUS_KM = 6371.0
FIBRE_KM_PER_S = 299_792.458 * 2 / 3  # light in glass
ROUTINGS = ("delay", "hops")
_HOP = 1 << 60  # more than any sum of delays in nanoseconds


def new_graph(central: str, routing: str = "delay") -> Graph[str]:
    """Return a graph without vertices."""
    return nx.DiGraph(central=central, routing=routing)


def join(graph: Graph[str], a: str, b: str, rate_bps: float | None, delay_s: float | None, **more: Any) -> None:
    """Add a link with the same properties in both directions."""
    for source, target in ((a, b), (b, a)):
        graph.add_edge(source, target, **{"loss": 0.0, "queue": None, **more}, rate_bps=rate_bps, delay_s=delay_s)


def data_centers(graph: Graph[str]) -> list[str]:
    """Return the vertices with workers, in insertion order."""
    return [name for name, data in graph.nodes(data=True) if data.get("workers") is not None]


def routers(graph: Graph[str]) -> list[str]:
    """Return the vertices without workers, in insertion order."""
    return [name for name, data in graph.nodes(data=True) if data.get("workers") is None]


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance (km) of two points (latitude, longitude in degrees) on the globe (haversine formula)."""
    (phi, lam), (psi, mu) = (tuple(math.radians(angle) for angle in point) for point in (a, b))
    square = math.sin((psi - phi) / 2) ** 2 + math.cos(phi) * math.cos(psi) * math.sin((mu - lam) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(square)))


def fibre_delay_s(distance_km: float, stretch: float) -> float:
    """Return the one-way delay of a fibre that is ``stretch`` times as long as the distance.

    Light travels at 2/3 c in glass. The delay is rounded to microseconds, which correspond to 200 m of fibre.
    """
    return round(distance_km * stretch / FIBRE_KM_PER_S, 6)


def unique(name: str, taken: set[str]) -> str:
    """Return ``name``, or the first free of ``name-2``, ``name-3`` …, and add it to ``taken``."""
    chosen = name
    number = 1
    while chosen in taken:
        number += 1
        ending = f"-{number}"
        chosen = name[: MAX_NAME - len(ending)] + ending
    taken.add(chosen)
    return chosen


def pairs(graph: Graph[str]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any] | None]]:
    """Yield every link once: its two ends, the data of this direction, and those of the reverse one or ``None``."""
    place = {name: number for number, name in enumerate(graph)}
    for a, b, data in graph.edges(data=True):
        back = graph.get_edge_data(b, a)
        if back is None or place[a] < place[b]:
            yield a, b, data, back


class Paths:
    """Shortest paths from one vertex to all others or, with ``backwards``, from all others to it.

    The shortest path has the lowest delay, or the fewest links and then the lowest delay. Among equally short paths, as
    in a fat tree, a hash of the pair's names chooses one, like switches that hash addresses (ECMP, RFC 2992), so that
    every run has the same paths.
    """

    def __init__(self, edges: Iterable[tuple[str, str, float]], origin: str, routing: str, backwards: bool) -> None:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_node(origin)
        for source, target, delay_s in edges:
            ends = (target, source) if backwards else (source, target)
            graph.add_edge(*ends, weight=_link_cost(delay_s, routing))
        self._origin = origin
        self._backwards = backwards
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


def _link_cost(delay_s: float, routing: str) -> int:
    """Return the cost of a link: an integer, so that sums are exact. Of paths with equal delays, fewer links win."""
    nanoseconds = round(delay_s * 1e9)
    return _HOP + nanoseconds if routing == "hops" else (nanoseconds << 16) + 1
