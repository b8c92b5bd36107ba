"""The part of a run's page that is known before the run begins: the drawn network, the nodes, and the title."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.identity import of_world, technique, technique_of
from analysis.layout import Place, coasts, laid_out
from testbed.errors import TestbedError


def plot_of(plan: Mapping[str, Any], resolved: Path | None = None) -> dict[str, Any]:
    """Return the nodes and links to which the indices in ``history`` refer, and the positions of vertices.

    ``x`` and ``y`` are between 0 and 1 (x to the right, y down).

    resolved  the file of the scenario with its defaults. Only this file has coordinates. If all vertices have them,
              the network is drawn on a map with the coasts ``land``
    """
    network = plan["network"]
    vertices = [site["name"] for site in network["sites"]] + list(network["routers"])
    places = _coordinates(resolved) if resolved is not None else {}
    land: list[list[Place]] = []
    if places and all(vertex in places for vertex in vertices):
        land, drawn = _mapped({vertex: places[vertex] for vertex in vertices})
    else:
        links = [(link["source"], link["target"]) for link in network["links"]]
        central = next((site["name"] for site in network["sites"] if site["central"]), vertices[0])
        drawn = laid_out(vertices, links, central)
    number = {vertex: index for index, vertex in enumerate(vertices)}
    pairs = {(link["source"], link["target"]) for link in network["links"]}
    return {
        "title": plan["name"],
        "subtitle": f"{technique(technique_of(plan)).label}, {of_world(plan).label}, seed {plan['seed']}",
        "paradigm": plan["technique"]["paradigm"]["kind"],
        "overlay": plan["technique"]["overlay_tier2"]["kind"],
        "program": plan.get("program") is not None,  # the messages of a program are unknown; only links are shown
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
    """Return the routes between sites without a direct link, as indices of vertices: ``"3>7": [3, 0, 7]``."""
    ends = {link["name"]: (link["source"], link["target"]) for link in network["links"]}
    found = {}
    for links in filter(None, network["routes"].values()):
        if (ends[links[0]][0], ends[links[-1]][1]) not in pairs:
            way = [number[ends[link][0]] for link in links] + [number[ends[links[-1]][1]]]
            found[f"{way[0]}>{way[-1]}"] = way
    return found


def _coordinates(resolved: Path) -> dict[str, tuple[float, float]]:
    """Return the latitudes and longitudes of the vertices in degrees; empty if the scenario has none."""
    try:
        written = resolved.read_bytes()
        if b"coordinates:" not in written:  # parsing a file with thousands of data centres takes seconds
            return {}
        from testbed.scenario.reading.document import parse, plain  # importing it takes almost a second

        found = plain(parse(written, resolved.name))["topology"]["coordinates"]
        return {name: (float(latitude.text), float(longitude.text)) for name, (latitude, longitude) in found.items()}
    except (OSError, TestbedError, LookupError, TypeError, AttributeError, ValueError):  # a scenario of another release
        return {}


def _mapped(places: Mapping[str, tuple[float, float]]) -> tuple[list[list[Place]], dict[str, Place]]:
    """Return the coasts and the positions of vertices on an equirectangular map.

    The map is the smallest square that contains all vertices.
    """
    latitudes, longitudes = zip(*places.values(), strict=True)
    north = max(latitudes)
    south = min(latitudes)
    east = max(longitudes)
    west = min(longitudes)
    # the length of a degree of latitude over that of a degree of longitude
    tall = 1 / max(0.3, math.cos(math.radians((north + south) / 2)))
    span = max(east - west, (north - south) * tall, 1.0)
    left = (west + east - span) / 2
    top = (north + south + span / tall) / 2

    def drawn(longitude: float, latitude: float) -> Place:
        return (longitude - left) / span, (top - latitude) * tall / span

    land = []
    if span > 25:  # degrees; the coasts are too coarse for a smaller map
        for coast in coasts():
            points = [drawn(longitude, latitude) for longitude, latitude in coast]
            if any(-1 < x < 2 and -1 < y < 2 for x, y in points):
                land.append([(round(x, 3), round(y, 3)) for x, y in points])
    return land, {name: drawn(longitude, latitude) for name, (latitude, longitude) in places.items()}
