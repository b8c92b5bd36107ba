"""SNDlib's XML (Orlowski et al., Networks 55(3), 2010): nodes with coordinates, links with capacity modules.

Capacities have no unit in the file. A link's rate is its preinstalled module's; without one, the largest of its
additional modules, which is said. Demands are left out.
"""

from __future__ import annotations

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.readers.xml import Element, parse_xml
from topologies.traces.model import TextFile


def parse(file: TextFile) -> RawGraph:
    """The network structure of the file."""
    root = parse_xml(file)
    structure = root.first("networkStructure")
    nodes, links = (structure.first(part) if structure else None for part in ("nodes", "links"))
    if structure is None or nodes is None or links is None:
        cure = "expected <network><networkStructure> with <nodes> and <links>; GraphML ends in .graphml"
        file.refuse(root.line, f"not SNDlib's XML (the root is <{root.tag}>)", cure)
    pixels = nodes.attributes.get("coordinatesType") == "pixel"
    raw = RawGraph([_vertex(file, node, pixels) for node in nodes.all("node")], [], default_unit="Mbit/s")
    if pixels:
        raw.notes.append("coordinates are pixels of a picture: distances and delays do not follow from them")
    additional = 0
    for link in links.all("link"):
        edge, is_additional = _edge(file, link)
        raw.edges.append(edge)
        additional += is_additional
    if additional:
        raw.notes.append(f"{additional} links have no preinstalled capacity; their largest additional module was taken")
    return raw


def _vertex(file: TextFile, node: Element, pixels: bool) -> RawVertex:
    key = node.attributes.get("id")
    if not key:
        file.refuse(node.line, "<node> has no id", 'write <node id="…">')
    x, y = node.first("coordinates", "x"), node.first("coordinates", "y")
    names = ("x", "y") if pixels else ("Longitude", "Latitude")
    place = {names[0]: x.text.strip(), names[1]: y.text.strip()} if x and y else {}
    return RawVertex(key, node.line, {"label": key, **place})


def _edge(file: TextFile, link: Element) -> tuple[RawEdge, bool]:
    ends = []
    for end in ("source", "target"):
        element = link.first(end)
        if element is None:
            file.refuse(link.line, f"<link> has no <{end}>", f"write <{end}>…</{end}>")
        ends.append(element.text.strip())
    installed = _capacity(file, link.first("preInstalledModule"))
    modules = link.first("additionalModules")
    more = [_capacity(file, module) for module in modules.all("addModule")] if modules else []
    rate = installed or max(more, default=0.0)
    data = {"LinkSpeedRaw": repr(rate)} if rate else {}
    return RawEdge(ends[0], ends[1], link.line, data), bool(rate and not installed)


def _capacity(file: TextFile, module: Element | None) -> float:
    capacity = module.first("capacity") if module else None
    if capacity is None:
        return 0.0
    try:
        return float(capacity.text)
    except ValueError:
        file.refuse(capacity.line, f"capacity '{capacity.text.strip()[:30]}' is no number", "write e.g. 9920.0")
