"""GraphML as the Internet Topology Zoo writes it (and yEd, networkx, Gephi): keys by id, data by key."""

from __future__ import annotations

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.readers.xml import Element, parse_xml
from topologies.traces.model import TextFile


def parse(file: TextFile) -> RawGraph:
    """The first graph of the file."""
    root = parse_xml(file)
    graph = root.first("graph")
    if root.tag != "graphml" or graph is None:
        what = f"the root is <{root.tag}>" if root.tag != "graphml" else "there is no <graph>"
        file.refuse(root.line, f"not GraphML: {what}", "expected <graphml> with a <graph> in it")
    keys = {key.attributes.get("id", ""): key.attributes.get("attr.name", "") for key in root.all("key")}
    defaults = {key.attributes.get("id", ""): key for key in root.all("key") if key.first("default")}
    vertices = [
        RawVertex(_attribute(file, node, "id"), node.line, _data(file, node, keys)) for node in graph.all("node")
    ]
    edges = [_edge(file, edge, keys) for edge in graph.all("edge")]
    raw = RawGraph(vertices, edges, graph.attributes.get("edgedefault") == "directed", data=_data(file, graph, keys))
    _fill(raw, keys, defaults)
    if next(graph.all("hyperedge"), None) is not None:
        raw.notes.append("hyperedges were left out")
    return raw


def _edge(file: TextFile, edge: Element, keys: dict[str, str]) -> RawEdge:
    ends = (_attribute(file, edge, "source"), _attribute(file, edge, "target"))
    return RawEdge(*ends, edge.line, _data(file, edge, keys))


def _data(file: TextFile, element: Element, keys: dict[str, str]) -> dict[str, str]:
    found = {}
    for data in element.all("data"):
        key = _attribute(file, data, "key")
        if key not in keys:
            file.refuse(data.line, f"no <key> has the id '{key}'", "declare it: <key id=… attr.name=… for=…>")
        found[keys[key] or key] = data.text.strip()
    return found


def _fill(raw: RawGraph, keys: dict[str, str], defaults: dict[str, Element]) -> None:
    """Defaults of keys, where nothing was said."""
    for key, element in defaults.items():
        default = element.first("default")
        holders = raw.edges if element.attributes.get("for") == "edge" else raw.vertices
        for holder in holders:
            holder.data.setdefault(keys[key] or key, default.text.strip() if default else "")


def _attribute(file: TextFile, element: Element, name: str) -> str:
    value = element.attributes.get(name)
    if value is None:
        file.refuse(element.line, f"<{element.tag}> has no {name}", f'write <{element.tag} {name}="…">')
    return value
