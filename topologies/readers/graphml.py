"""GraphML as the Internet Topology Zoo, yEd, networkx and Gephi write it.

``networkx.read_graphml`` is not used: its errors name no line, and it expands entities.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.readers.xml import attribute, line_of, parse_xml, text_of
from topologies.text_file import TextFile


def parse(file: TextFile) -> RawGraph:
    """Return the first graph of the file."""
    root = parse_xml(file)
    graph = root.find("graph")
    if root.tag != "graphml" or graph is None:
        what = f"the root is <{root.tag}>" if root.tag != "graphml" else "there is no <graph>"
        file.refuse(line_of(root), f"not GraphML: {what}", "expected <graphml> with a <graph> in it")
    keys = {key.get("id", ""): key for key in root.findall("key")}
    raw = RawGraph(
        vertices=[
            RawVertex(attribute(file, node, "id"), line_of(node), _data(file, node, keys))
            for node in graph.findall("node")
        ],
        edges=[_edge(file, edge, keys) for edge in graph.findall("edge")],
        directed=graph.get("edgedefault") == "directed",
    )
    one_way = sum(edge.get("directed") == "true" for edge in graph.findall("edge"))
    if one_way and not raw.directed:
        raw.notes.append(f"{one_way} directed edges of an undirected graph were read as links in both directions")
    if graph.find("hyperedge") is not None:
        raw.notes.append("hyperedges were left out")
    return raw


def _edge(file: TextFile, edge: Element, keys: dict[str, Element]) -> RawEdge:
    ends = (attribute(file, edge, "source"), attribute(file, edge, "target"))
    return RawEdge(*ends, line_of(edge), _data(file, edge, keys))


def _data(file: TextFile, element: Element, keys: dict[str, Element]) -> dict[str, str]:
    """Return the element's values by name; a key's default holds where the element has no value."""
    holder = "edge" if element.tag == "edge" else "node"
    found = {
        _name(key): text_of(key.find("default"))
        for key in keys.values()
        if key.find("default") is not None and key.get("for", "all") in (holder, "all")
    }
    for data in element.findall("data"):
        key = attribute(file, data, "key")
        if key not in keys:
            file.refuse(line_of(data), f"no <key> has the id '{key}'", "declare it: <key id=… attr.name=… for=…>")
        found[_name(keys[key])] = text_of(data)
    return found


def _name(key: Element) -> str:
    return key.get("attr.name") or key.get("id") or ""
