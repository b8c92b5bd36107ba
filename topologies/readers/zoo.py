"""Turns the content of a graph file into an annotated graph, and handles known defects of the Internet Topology Zoo.

Source of the files: Knight et al., "The Internet Topology Zoo", IEEE JSAC 29(9), 2011. The rate of a link comes from
the first of these that the file has: LinkSpeedRaw, LinkSpeed with its units, LinkLabel, or, as in Shadow's files,
``bandwidth`` of the link or the bandwidths of the hosts at its ends. The delay is stated (``latency``) or computed from
the distance. Some defects are refused with line and cure: rates in another unit, invalid coordinates, links without
rate or delay. Others are repaired with a note: repeated labels, parallel links, self-loops, vertices of other networks,
vertices without a link, unconnected parts.
"""

from __future__ import annotations

import math
from typing import Any

import networkx as nx

from testbed.ids import slug
from testbed.numbers import counted
from topologies.graph import Graph, fibre_delay_s, great_circle_km, new_graph, unique
from topologies.readers.base import RATE_UNITS, GraphReading
from topologies.readers.raw import RawGraph, RawVertex
from topologies.readers.speeds import rate_of
from topologies.readers.stated import bandwidth_of, delay_of, host_bandwidth_of, loss_of
from topologies.text_file import TextFile

MAX_VERTICES = 10_000


def annotate(file: TextFile, raw: RawGraph, reading: GraphReading) -> Graph[str]:
    """Return the annotated graph; ``graph.graph["notes"]`` lists the repairs. Raise ``ScenarioError``."""
    if reading.rate_unit is not None and reading.rate_unit not in RATE_UNITS:
        file.refuse(None, f"rate_unit '{reading.rate_unit}' is not known", f"one of {', '.join(RATE_UNITS)}")
    notes = list(raw.notes)
    names = _names(file, raw, reading, notes)
    graph = new_graph("")
    for vertex in raw.vertices:
        if vertex.key in names:
            graph.add_node(names[vertex.key], workers=None, line=vertex.line, **_place(file, vertex))
    _add_edges(file, graph, raw, names, reading)
    notes += graph.graph.pop("repairs")
    if raw.directed:
        _mirror(graph, notes)
    _keep_largest_part(file, graph, notes)
    _complete(file, graph, reading, notes)
    _choose(file, graph, reading)
    graph.graph["notes"] = tuple(notes)
    return graph


def _names(file: TextFile, raw: RawGraph, reading: GraphReading, notes: list[str]) -> dict[str, str]:
    """Return, by key, a valid and unique name for every vertex that is kept."""
    if not raw.vertices:
        file.refuse(None, "has no vertices", "is the file complete?")
    if len(raw.vertices) > MAX_VERTICES:
        file.refuse(None, f"has {len(raw.vertices)} vertices, allowed {MAX_VERTICES}", "shorten the file")
    lines: dict[str, int] = {}
    names: dict[str, str] = {}
    taken: set[str] = set()
    external = repeated = 0
    for vertex in raw.vertices:
        first = lines.setdefault(vertex.key, vertex.line)
        if first != vertex.line or vertex.key in names:
            file.refuse(vertex.line, f"node id '{vertex.key}' is used twice (also line {first})", "give it another id")
        if vertex.data.get("Internal", "1").split(".")[0] in ("0", "False", "false") and not reading.external:
            external += 1
            continue
        label = vertex.data.get("label", "")
        wanted = slug(label if label not in ("", "None", "?") else vertex.key) or slug(f"n{vertex.key}") or "vertex"
        names[vertex.key] = unique(wanted, taken)
        repeated += names[vertex.key] != wanted
    if external:
        left_out = counted(external, "vertex", "vertices")
        notes.append(f"left out: {left_out} of other networks (Internal 0); 'external: true' keeps such vertices")
    if repeated:
        notes.append(f"numbered: {counted(repeated, 'vertex', 'vertices')} whose label an earlier vertex has")
    if not names:
        file.refuse(
            raw.vertices[0].line, "all vertices belong to other networks (Internal 0)", "write 'external: true'"
        )
    return names


def _place(file: TextFile, vertex: RawVertex) -> dict[str, Any]:
    """Return the coordinates of a vertex as attributes, if it has any; pixels become ``xy``."""
    data = vertex.data
    if "x" in data and "y" in data and "Latitude" not in data:
        x, y = (_number(file, vertex.line, name, data[name]) for name in ("x", "y"))
        return {} if x is None or y is None else {"xy": (x, -y)}
    if "Latitude" not in data or "Longitude" not in data:
        return {}
    latitude, longitude = (_number(file, vertex.line, name, data[name]) for name in ("Latitude", "Longitude"))
    if latitude is None or longitude is None:
        return {}
    if not -90 <= latitude <= 90 and -90 <= longitude <= 90:
        file.refuse(vertex.line, f"latitude {latitude:g}, longitude {longitude:g}: exchanged?", "exchange them")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        problem = f"latitude {latitude:g}, longitude {longitude:g} are not degrees"
        file.refuse(vertex.line, problem, "latitude is in [-90, 90], longitude in [-180, 180]; or remove both")
    return {"latitude": latitude, "longitude": longitude}


def _number(file: TextFile, line: int, name: str, text: str) -> float | None:
    if text in ("", "None", "nan", "NaN", "?"):
        return None
    return file.number(line, text, f"{name} '{text[:30]}' is not a number", "write decimal degrees, or remove it")


def _add_edges(file: TextFile, graph: Graph[str], raw: RawGraph, names: dict[str, str], reading: GraphReading) -> None:
    """Add all links between vertices that are kept, and list the repairs in ``graph.graph["repairs"]``."""
    vertices = {vertex.key: vertex for vertex in raw.vertices}
    loops = parallel = by_hosts = 0
    for edge in raw.edges:
        for end in (edge.source, edge.target):
            if end not in vertices:
                file.refuse(edge.line, f"no node has the id '{end}'", "add the node, or correct the edge")
        if edge.source not in names or edge.target not in names:
            continue
        if edge.source == edge.target:
            loops += 1
            continue
        a = names[edge.source]
        b = names[edge.target]
        own_bps = rate_of(file, edge, raw.default_unit, reading.rate_unit) or bandwidth_of(file, edge)
        delay_s = delay_of(file, edge)
        loss = loss_of(file, edge) or 0.0
        parallel += graph.has_edge(a, b)
        ways = (
            ((edge.source, edge.target),) if raw.directed else ((edge.source, edge.target), (edge.target, edge.source))
        )
        for source, target in ways:
            rate_bps = own_bps or _rate_of_hosts(file, vertices[source], vertices[target])
            by_hosts += own_bps is None and rate_bps is not None
            values = {"rate_bps": rate_bps, "delay_s": delay_s, "loss": loss, "line": edge.line}
            _add_direction(graph, names[source], names[target], values)
    graph.graph["repairs"] = [f"{loops} links from a vertex to itself were left out"] if loops else []
    if by_hosts:
        graph.graph["repairs"].append(
            f"{by_hosts} directions have the rate of the hosts at their ends (host_bandwidth)"
        )
    if parallel:
        graph.graph["repairs"].append(
            f"{parallel} parallel links were joined into the first between their ends, rates added"
        )


def _rate_of_hosts(file: TextFile, source: RawVertex, target: RawVertex) -> float | None:
    """Return the rate at which hosts at one vertex can send to hosts at the other; ``None`` if it is not stated."""
    rates = (host_bandwidth_of(file, source, "up"), host_bandwidth_of(file, target, "down"))
    return min((rate for rate in rates if rate), default=None)


def _add_direction(graph: Graph[str], a: str, b: str, values: dict[str, Any]) -> None:
    """Add one direction of a link; that of a parallel link adds its rate to the first one."""
    if not graph.has_edge(a, b):
        graph.add_edge(a, b, queue=None, **values)
    elif values["rate_bps"] is not None:
        graph.edges[a, b]["rate_bps"] = (graph.edges[a, b]["rate_bps"] or 0.0) + values["rate_bps"]


def _mirror(graph: Graph[str], notes: list[str]) -> None:
    """Add an equal reverse direction to links that lack one: the Zoo marks some undirected files as directed."""
    missing = [(a, b, data) for a, b, data in graph.edges(data=True) if not graph.has_edge(b, a)]
    for a, b, data in missing:
        graph.add_edge(b, a, **data)
    if missing:
        notes.append(
            f"the file is marked 'directed', but {len(missing)} links have no reverse direction; they got an equal one"
        )


def _keep_largest_part(file: TextFile, graph: Graph[str], notes: list[str]) -> None:
    if graph.number_of_edges() == 0 and len(graph) > 1:
        file.refuse(None, f"its {len(graph)} vertices have no links", "is the file complete?")
    parts = sorted(nx.weakly_connected_components(graph), key=lambda part: (-len(part), min(part)))
    lost = sorted(name for part in parts[1:] for name in part)
    graph.remove_nodes_from(lost)
    if lost:
        shown = ", ".join(lost[:5]) + (", …" if len(lost) > 5 else "")
        left_out = counted(len(lost), "vertex", "vertices")
        notes.append(f"left out: {left_out} without a way to the largest part of the network ({shown})")


def _complete(file: TextFile, graph: Graph[str], reading: GraphReading, notes: list[str]) -> None:
    """Fill in missing values: delays by distance, and then the user's defaults. Refuse links that still lack one."""
    unknown: dict[str, list[tuple[str, str, int]]] = {"rate_bps": [], "delay_s": []}
    filled = {"rate_bps": 0, "delay_s": 0}
    by_distance = False
    for a, b, data in graph.edges(data=True):
        if data["delay_s"] is None:
            data["delay_s"] = _distance_delay(graph, a, b, reading.stretch)
            by_distance |= data["delay_s"] is not None
        for key, default in (("rate_bps", reading.rate_bps), ("delay_s", reading.delay_s)):
            if data[key] is None and default is None:
                unknown[key].append((a, b, data["line"]))
            elif data[key] is None:
                data[key], filled[key] = default, filled[key] + 1
    _refuse_unknown(file, unknown["rate_bps"], "no rate", "give a default: 'rate: 1 Gbit/s'")
    _refuse_unknown(
        file, unknown["delay_s"], "no latency, and an end has no coordinates", "give a default: 'delay: 5 ms'"
    )
    for key, what in (("rate_bps", "rate"), ("delay_s", "delay")):
        if filled[key]:
            notes.append(f"{filled[key]} of {graph.number_of_edges()} directions have the default {what}")
    if by_distance:
        notes.append(f"delay: great circle x {reading.stretch:g} at 2/3 of the speed of light")


def _refuse_unknown(file: TextFile, unknown: list[tuple[str, str, int]], what: str, cure: str) -> None:
    if unknown:
        a, b, line = unknown[0]
        links = len({frozenset((source, target)) for source, target, _ in unknown})
        others = f" (and {links - 1} others)" if links > 1 else ""
        file.refuse(line, f"the link from '{a}' to '{b}'{others} has {what}", cure)


def _distance_delay(graph: Graph[str], a: str, b: str, stretch: float) -> float | None:
    here = graph.nodes[a]
    there = graph.nodes[b]
    if "latitude" not in here or "latitude" not in there:
        return None
    points = ((here["latitude"], here["longitude"]), (there["latitude"], there["longitude"]))
    return fibre_delay_s(great_circle_km(*points), stretch)


def _choose(file: TextFile, graph: Graph[str], reading: GraphReading) -> None:
    """Mark the vertices that are data centres, and the central one."""
    sites = reading.sites if reading.sites is not None else tuple(graph)
    if not sites:
        file.refuse(None, "none of its vertices is chosen", "name at least one in 'sites'")
    for name in sites:
        if name not in graph:
            near = ", ".join(list(graph)[:8])
            file.refuse(None, f"no vertex is named '{name}'", f"names are {near}{', …' if len(graph) > 8 else ''}")
        graph.nodes[name]["workers"] = reading.workers
    if reading.central is not None and reading.central not in sites:
        file.refuse(
            None, f"central '{reading.central}' is not one of its data centres", f"one of {', '.join(sites[:8])}"
        )
    graph.graph["central"] = reading.central or _middle(graph, sites)


def _middle(graph: Graph[str], sites: tuple[str, ...]) -> str:
    """Return the data centre with the lowest sum of delays to the others."""

    def total(site: str) -> float:
        lengths = nx.single_source_dijkstra_path_length(graph, site, weight="delay_s")
        return math.fsum(lengths.get(other, math.inf) for other in sites)

    return min(sites, key=total)
