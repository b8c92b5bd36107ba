"""Annotated graphs: the vertices and directed edges of a wide-area network, and distances on the globe.

A vertex is a data centre (``workers`` is a number) or a router (``workers`` is ``None``); it may have ``latitude`` and
``longitude`` in degrees, or coordinates ``xy`` on a plane, for pictures. An edge is one direction of a link:
``rate_bps``, ``delay_s`` (one way), ``loss`` (share) and ``queue`` (a text such as ``50 ms``, or ``None`` for the
default). The graph has ``central``, the data centre of the global server, and ``routing``: by ``delay``, or by ``hops``
and then delay. The latter is for measured pairs: the link of a pair represents the measured path, even where a detour
would be shorter.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import networkx as nx

Graph = nx.DiGraph
EARTH_RADIUS_KM = 6371.0
FIBRE_KM_PER_S = 299_792.458 * 2 / 3  # light in glass
MAX_NAME = 32


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
    """Return the other vertices, in insertion order."""
    return [name for name, data in graph.nodes(data=True) if data.get("workers") is None]


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance of two points (latitude, longitude in degrees) on a sphere, by the haversine formula."""
    (phi, lam), (psi, mu) = (tuple(math.radians(angle) for angle in point) for point in (a, b))
    square = math.sin((psi - phi) / 2) ** 2 + math.cos(phi) * math.cos(psi) * math.sin((mu - lam) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(square)))


def fibre_delay_s(distance_km: float, stretch: float) -> float:
    """Return the one-way delay of a fibre that is ``stretch`` times as long as the distance.

    Light travels at 2/3 c in glass. Rounded to microseconds, which is 200 m of fibre.
    """
    return round(distance_km * stretch / FIBRE_KM_PER_S, 6)


def slug(text: str) -> str:
    """Return a valid vertex name for any label: ``Zürich (CH)`` is ``zurich-ch``; empty if no character is usable."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return (words if words[:1].isalpha() else f"n{words}" if words else "")[:MAX_NAME].rstrip("-")


def unique(name: str, taken: set[str]) -> str:
    """Return ``name``, or the first free of ``name-2``, ``name-3`` …, and add it to ``taken``."""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        ending = f"-{number}"
        chosen = name[: MAX_NAME - len(ending)] + ending
    taken.add(chosen)
    return chosen


def pairs(graph: Graph[str]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any] | None]]:
    """Yield every link once: its two ends, the data of that direction and, if there is one, of the reverse."""
    place = {name: number for number, name in enumerate(graph)}
    for a, b, data in graph.edges(data=True):
        back = graph.get_edge_data(b, a)
        if back is None or place[a] < place[b]:
            yield a, b, data, back
