"""SNDlib's XML (Orlowski et al., Networks 55(3), 2010): nodes with coordinates, links with capacity modules.

Capacities have no unit in the file. The rate of a link is the capacity of its preinstalled module. If it has none, the
rate is the capacity of its largest additional module, and a note says so. Demands are ignored.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.readers.xml import attribute, line_of, parse_xml, text_of
from topologies.text_file import TextFile


def parse(file: TextFile) -> RawGraph:
    """Return the network structure of the file."""
    root = parse_xml(file)
    nodes = root.find("networkStructure/nodes")
    links = root.find("networkStructure/links")
    if nodes is None or links is None:
        cure = "expected <network><networkStructure> with <nodes> and <links>; GraphML ends in .graphml"
        file.refuse(line_of(root), f"not SNDlib's XML (the root is <{root.tag}>)", cure)
    pixels = nodes.get("coordinatesType") == "pixel"
    raw = RawGraph([_vertex(file, node, pixels) for node in nodes.findall("node")], [], default_unit="Mbit/s")
    if pixels:
        raw.notes.append("coordinates are pixels of a picture: distances and delays do not follow from them")
    additional = 0
    for link in links.findall("link"):
        edge, is_additional = _edge(file, link)
        raw.edges.append(edge)
        additional += is_additional
    if additional:
        raw.notes.append(f"{additional} links have no preinstalled capacity; their largest additional module was taken")
    return raw


def _vertex(file: TextFile, node: Element, pixels: bool) -> RawVertex:
    key = attribute(file, node, "id")
    x = node.find("coordinates/x")
    y = node.find("coordinates/y")
    names = ("x", "y") if pixels else ("Longitude", "Latitude")
    place = {} if x is None or y is None else {names[0]: text_of(x), names[1]: text_of(y)}
    return RawVertex(key, line_of(node), {"label": key, **place})


def _edge(file: TextFile, link: Element) -> tuple[RawEdge, bool]:
    """Return the edge, and whether its rate is that of an additional module."""
    for end in ("source", "target"):
        if link.find(end) is None:
            file.refuse(line_of(link), f"<link> has no <{end}>", f"write <{end}>…</{end}>")
    installed = _capacity(file, link.find("preInstalledModule/capacity"))
    more = [_capacity(file, capacity) for capacity in link.findall("additionalModules/addModule/capacity")]
    rate = installed or max(more, default=0.0)
    data = {"LinkSpeedRaw": repr(rate)} if rate else {}
    ends = (text_of(link.find("source")), text_of(link.find("target")))
    return RawEdge(*ends, line_of(link), data), bool(rate and not installed)


def _capacity(file: TextFile, capacity: Element | None) -> float:
    if capacity is None:
        return 0.0
    text = text_of(capacity)
    return file.number(line_of(capacity), text, f"capacity '{text[:30]}' is not a number", "write e.g. 9920.0")
