"""What a page draws before anything has happened: the network in the plane, the nodes, and what is run on them."""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis import figures
from analysis.identity import of_world, technique, technique_of
from testbed.errors import TestbedError

Place = tuple[float, float]
_LAID_OUT = 120  # vertices, at most, of a layout by springs, which takes the cube of that
_ON_A_CIRCLE = 48  # vertices, at most: more would touch each other
_TURN = 2 * math.pi
_GOLDEN = _TURN * (1 - 2 / (1 + math.sqrt(5)))  # the golden angle


def plot_of(plan: Mapping[str, Any], resolved: Path | None = None) -> dict[str, Any]:
    """Return the lists that columns of ``history`` count in, with places between 0 and 1 (x to the right, y down).

    ``resolved``: the scenario with its defaults, which alone has coordinates; ``land`` is then what a map shows.
    """
    network = plan["network"]
    vertices = [site["name"] for site in network["sites"]] + list(network["routers"])
    places = _coordinates(resolved) if resolved is not None else {}
    land: list[list[Place]] = []
    if places and all(vertex in places for vertex in vertices):
        land, drawn = _mapped({vertex: places[vertex] for vertex in vertices})
    else:
        drawn = _laid_out(vertices, network)
    number = {vertex: place for place, vertex in enumerate(vertices)}
    pairs = {(link["source"], link["target"]) for link in network["links"]}
    return {
        "title": plan["name"],
        "subtitle": f"{technique(technique_of(plan)).label}, {of_world(plan).label}, seed {plan['seed']}",
        "paradigm": plan["technique"]["paradigm"]["kind"],
        "overlay": plan["technique"]["overlay_tier2"]["kind"],
        "target": plan["training"]["target_accuracy"],
        "max_rounds": plan["training"]["rounds"],
        "vertices": vertices,
        "x": [round(drawn[vertex][0], 4) for vertex in vertices],
        "y": [round(drawn[vertex][1], 4) for vertex in vertices],
        "sites": len(network["sites"]),
        "central": [site["name"] for site in network["sites"] if site["central"]],
        "land": land,
        "links": {
            "name": [link["name"] for link in network["links"]],
            "source": [number[link["source"]] for link in network["links"]],
            "target": [number[link["target"]] for link in network["links"]],
            "rate_bps": [link["rate_bps"] for link in network["links"]],
            "delay_s": [link["delay_s"] for link in network["links"]],
            "loss": [link["loss"] for link in network["links"]],
            "queue_bytes": [link["queue_bytes"] for link in network["links"]],
        },
        "nodes": {
            "name": [node["name"] for node in plan["nodes"]],
            "role": [node["role"] for node in plan["nodes"]],
            "site": [number[node["data_center"]] for node in plan["nodes"]],
        },
        "routes": _routes(network, number, pairs),
    }


def _routes(network: Mapping[str, Any], number: Mapping[str, int], pairs: set[tuple[str, str]]) -> dict[str, list[int]]:
    """Return the vertices on the way between two sites that no link joins, by their numbers: ``"3>7": [3, 0, 7]``."""
    ends = {link["name"]: (link["source"], link["target"]) for link in network["links"]}
    found = {}
    for links in filter(None, network["routes"].values()):
        if (ends[links[0]][0], ends[links[-1]][1]) not in pairs:
            way = [number[ends[link][0]] for link in links] + [number[ends[links[-1]][1]]]
            found[f"{way[0]}>{way[-1]}"] = way
    return found


def _coordinates(resolved: Path) -> dict[str, tuple[float, float]]:
    """Return latitude and longitude of the vertices, in degrees, if the scenario says them."""
    try:
        written = resolved.read_bytes()
        if b"coordinates:" not in written:  # reading a file of thousands of data centres takes seconds
            return {}
        from testbed.scenario.reading.document import parse, plain  # which takes almost a second to import

        found = plain(parse(written, resolved.name))["topology"]["coordinates"]
        return {name: (float(latitude.text), float(longitude.text)) for name, (latitude, longitude) in found.items()}
    except (OSError, TestbedError, LookupError, TypeError, AttributeError, ValueError):  # a scenario of another release
        return {}


def _mapped(places: Mapping[str, tuple[float, float]]) -> tuple[list[list[Place]], dict[str, Place]]:
    """Return the coasts, and the places of vertices, in the part of an equirectangular map that has them all."""
    latitudes, longitudes = zip(*places.values(), strict=True)
    north = max(latitudes)
    south = min(latitudes)
    east = max(longitudes)
    west = min(longitudes)
    tall = 1 / max(0.3, math.cos(math.radians((north + south) / 2)))  # as a degree of longitude is shorter there
    span = max(east - west, (north - south) * tall, 1.0)
    left = (west + east - span) / 2
    top = (north + south + span / tall) / 2

    def drawn(longitude: float, latitude: float) -> Place:
        return (longitude - left) / span, (top - latitude) * tall / span

    land = []
    if span > 25:  # a smaller part needs better coasts than ours
        text = (Path(figures.__file__).parent / "land.json").read_text(encoding="utf-8")
        for coast in json.loads(text)["land"]:
            points = [drawn(longitude, latitude) for longitude, latitude in coast]
            if any(-1 < x < 2 and -1 < y < 2 for x, y in points):
                land.append([(round(x, 3), round(y, 3)) for x, y in points])
    return land, {name: drawn(longitude, latitude) for name, (latitude, longitude) in places.items()}


def _laid_out(vertices: list[str], network: Mapping[str, Any]) -> dict[str, Place]:
    """Lay out a network without coordinates: a star with its middle there, few by springs, many as a tree in rings."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in network["links"]:
        neighbours[link["source"]].add(link["target"])
        neighbours[link["target"]].add(link["source"])
    middle = next((site["name"] for site in network["sites"] if site["central"]), vertices[0])
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
    """Spread many vertices evenly around a free middle, as the seeds of a sunflower are."""
    place = {}
    for number, vertex in enumerate(vertices):
        away = 0.49 * math.sqrt(0.04 + 0.96 * (number + 0.5) / len(vertices))
        angle = number * _GOLDEN
        place[vertex] = (0.5 + away * math.cos(angle), 0.5 + away * math.sin(angle))
    return place


def _in_line(vertices: list[str]) -> dict[str, Place]:
    return {vertex: ((number + 0.5) / len(vertices), 0.5) for number, vertex in enumerate(vertices)}


def _in_rings(hub: str, neighbours: Mapping[str, set[str]], vertices: Iterable[str]) -> dict[str, Place]:
    """Place vertices by their distance from the hub, each within the angle of the one that it hangs on."""
    children: dict[str, list[str]] = defaultdict(list)
    depth = {hub: 0}
    order = []
    waiting = deque([hub])
    left = deque(sorted(vertices))
    while waiting or left:
        if not waiting:  # a part that no link joins with the rest
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
    """Move and scale places into the middle of the square between 0 and 1."""
    across, down = zip(*places.values(), strict=True)
    span = max(max(across) - min(across), max(down) - min(down)) or 1.0
    middle_x = (min(across) + max(across)) / 2
    middle_y = (min(down) + max(down)) / 2
    return {name: (0.5 + (x - middle_x) / span, 0.5 + (y - middle_y) / span) for name, (x, y) in places.items()}
