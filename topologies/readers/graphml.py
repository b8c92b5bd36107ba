"""GraphML, as the Internet Topology Zoo, yEd, networkx and Gephi write it. networkx parses its keys and values."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

import networkx as nx
from networkx.readwrite.graphml import GraphMLReader

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.readers.xml import attribute, line_of, parse_xml
from topologies.text_file import TextFile


def parse(file: TextFile) -> RawGraph:
    """Return the first graph of the file. Raise ``ScenarioError`` with the line."""
    root = parse_xml(file)
    graph = root.find("graph")
    if root.tag != "graphml" or graph is None:
        what = f"the root is <{root.tag}>" if root.tag != "graphml" else "there is no <graph>"
        file.refuse(line_of(root), f"not GraphML: {what}", "expected <graphml> with a <graph> in it")
    one_way = sum(edge.get("directed") == "true" for edge in graph.findall("edge"))
    for element in root.iter():
        element.tag = f"{{{GraphMLReader.NS_GRAPHML}}}{element.tag}"  # networkx needs the namespace
    reader = _Reader(file)
    try:
        reader.make_graph(graph, *reader.find_graphml_keys(root))  # type: ignore[no-untyped-call]
    except (nx.NetworkXError, LookupError) as error:
        file.refuse(line_of(graph), f"networkx cannot read it: {error}", "correct the file")
    raw = RawGraph(reader.vertices, reader.edges, graph.get("edgedefault") == "directed")
    if one_way and not raw.directed:
        raw.notes.append(f"{one_way} directed edges of an undirected graph were read as links in both directions")
    return raw


class _Reader(GraphMLReader):
    """Collects vertices and edges in the order of the file, with their lines; all values are texts.

    The graph of networkx has neither order nor lines. It would also merge vertices with the same id, and add a vertex
    for an edge to an unknown one.
    """

    def __init__(self, file: TextFile) -> None:
        super().__init__()
        self.python_type = dict.fromkeys(self.python_type, str)
        self.vertices: list[RawVertex] = []
        self.edges: list[RawEdge] = []
        self._file = file
        self._defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}

    def find_graphml_keys(self, graph_element: Element) -> tuple[dict[str, Any], dict[str, str]]:
        # networkx requires a name for each key, and warns if there is no type
        for key in graph_element.findall(f"{{{self.NS_GRAPHML}}}key"):
            key.set("attr.name", key.get("attr.name") or key.get("id") or "")
            key.set("attr.type", "string")
        keys, defaults = super().find_graphml_keys(graph_element)  # type: ignore[no-untyped-call]
        for key, default in defaults.items():
            for holder, values in self._defaults.items():
                if keys[key]["for"] in (holder, "all", None):
                    values[keys[key]["name"]] = default
        return keys, defaults

    def add_node(self, G: Any, node_xml: Element, graphml_keys: dict[str, Any], defaults: Any) -> None:  # noqa: N803
        key = attribute(self._file, node_xml, "id")
        self.vertices.append(RawVertex(key, line_of(node_xml), self._texts("node", node_xml, graphml_keys)))

    def add_edge(self, G: Any, edge_element: Element, graphml_keys: dict[str, Any]) -> None:  # noqa: N803
        source, target = (attribute(self._file, edge_element, end) for end in ("source", "target"))
        values = self._texts("edge", edge_element, graphml_keys)
        self.edges.append(RawEdge(source, target, line_of(edge_element), values))

    def _texts(self, holder: str, element: Element, keys: dict[str, Any]) -> dict[str, str]:
        """Return the element's values by name; if it has no value for a key, the key's default."""
        try:
            values = self.decode_data_elements(keys, element)  # type: ignore[no-untyped-call]
        except nx.NetworkXError as error:
            self._file.refuse(line_of(element), str(error), "declare it: <key id=… attr.name=… for=…>")
        return {**self._defaults[holder], **{name: (text or "").strip() for name, text in values.items()}}
