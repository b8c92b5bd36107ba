"""Positions for the vertices of a network without coordinates, and the coasts of maps."""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

Place = tuple[float, float]
_LAID_OUT = 120  # the most vertices for a layout by springs, whose time grows with their cube
_ON_A_CIRCLE = 48  # the most vertices on a circle: more would touch each other
_TURN = 2 * math.pi
_GOLDEN = _TURN * (1 - 2 / (1 + math.sqrt(5)))  # the golden angle


@cache
def coasts() -> list[list[Place]]:
    """Return the coasts of the continents, as lines of longitude and latitude in degrees."""
    text = Path(__file__).with_name("land.json").read_text(encoding="utf-8")
    return [[(longitude, latitude) for longitude, latitude in line] for line in json.loads(text)["land"]]


def laid_out(vertices: list[str], links: Iterable[tuple[str, str]], middle: str) -> dict[str, Place]:
    """Return positions between 0 and 1 (x to the right, y down).

    A star is drawn around its hub, a small network by springs, a large one in rings.

    links   the two ends of each link
    middle  the hub if several vertices have the most links
    """
    neighbours: dict[str, set[str]] = defaultdict(set)
    for source, target in links:
        neighbours[source].add(target)
        neighbours[target].add(source)
    hub = max(vertices, key=lambda vertex: (len(neighbours[vertex]), vertex == middle))
    others = [vertex for vertex in vertices if vertex != hub]
    if len(vertices) <= 2 or all(neighbours[vertex] <= {hub} for vertex in others):
        around = _circle(others) if len(others) <= _ON_A_CIRCLE else _on_a_disc(others)
        return _within({hub: (0.5, 0.5), **around}) if len(vertices) > 2 else _in_line(vertices)
    if len(vertices) <= 4 or all(len(neighbours[vertex]) == len(vertices) - 1 for vertex in vertices):
        return _within(_circle(vertices))
    if len(vertices) <= _LAID_OUT:
        import networkx as nx

        edges = [(a, b) for a in neighbours for b in neighbours[a] if a < b]
        graph = nx.Graph(edges)
        graph.add_nodes_from(vertices)
        found = nx.kamada_kawai_layout(graph)
        return _within({name: (float(x), float(y)) for name, (x, y) in found.items()})
    return _within(_in_rings(hub, neighbours, vertices))


def _circle(vertices: list[str]) -> dict[str, Place]:
    place = {}
    for number, vertex in enumerate(vertices):
        angle = _TURN * number / len(vertices) - (math.pi / 2 if len(vertices) > 2 else 0)
        place[vertex] = (0.5 + 0.46 * math.cos(angle), 0.5 + 0.46 * math.sin(angle))
    return place


def _on_a_disc(vertices: list[str]) -> dict[str, Place]:
    """Spread many vertices evenly around a free centre, like the seeds of a sunflower."""
    place = {}
    for number, vertex in enumerate(vertices):
        away = 0.49 * math.sqrt(0.04 + 0.96 * (number + 0.5) / len(vertices))
        angle = number * _GOLDEN
        place[vertex] = (0.5 + away * math.cos(angle), 0.5 + away * math.sin(angle))
    return place


def _in_line(vertices: list[str]) -> dict[str, Place]:
    return {vertex: ((number + 0.5) / len(vertices), 0.5) for number, vertex in enumerate(vertices)}


def _in_rings(hub: str, neighbours: Mapping[str, set[str]], vertices: Iterable[str]) -> dict[str, Place]:
    """Place vertices in rings by their number of links from the hub, each within the sector of its predecessor."""
    children: dict[str, list[str]] = defaultdict(list)
    depth = {hub: 0}
    order = []
    waiting = deque([hub])
    left = deque(sorted(vertices))
    while waiting or left:
        if not waiting:  # the rest of the network is not connected with the hub
            vertex = left.popleft()
            if vertex in depth:
                continue
            depth[vertex] = 1
            children[hub].append(vertex)
            waiting.append(vertex)
        vertex = waiting.popleft()
        order.append(vertex)
        for other in sorted(neighbours[vertex]):
            if other not in depth:
                depth[other] = depth[vertex] + 1
                children[vertex].append(other)
                waiting.append(other)
    leaves: dict[str, int] = {}
    for vertex in reversed(order):
        leaves[vertex] = sum(leaves[child] for child in children[vertex]) or 1
    place = {hub: (0.0, 0.0)}
    begin = {hub: 0.0}
    for vertex in order:
        at = begin[vertex]
        for child in children[vertex]:
            begin[child] = at
            wide = _TURN * leaves[child] / leaves[hub]
            angle = at + wide / 2
            place[child] = (depth[child] * math.cos(angle), depth[child] * math.sin(angle))
            at += wide
    return place


def _within(places: Mapping[str, Place]) -> dict[str, Place]:
    """Move and scale positions into the centre of the square between 0 and 1."""
    across, down = zip(*places.values(), strict=True)
    span = max(max(across) - min(across), max(down) - min(down)) or 1.0
    middle_x = (min(across) + max(across)) / 2
    middle_y = (min(down) + max(down)) / 2
    return {name: (0.5 + (x - middle_x) / span, 0.5 + (y - middle_y) / span) for name, (x, y) in places.items()}
