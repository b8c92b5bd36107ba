"""Read graph files as annotated graphs: GraphML and GML (the Internet Topology Zoo), SNDlib's XML.

Errors name the line and the cure. Harmless defects are repaired, with a note in the graph's ``notes``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from topologies.graph import Graph
from topologies.readers import gml, graphml, sndlib
from topologies.readers.options import GraphReading
from topologies.readers.raw import RawGraph
from topologies.readers.xml import MAX_FILE_BYTES
from topologies.readers.zoo import annotate
from topologies.traces.model import TextFile

READERS: dict[str, Callable[[TextFile], RawGraph]] = {
    ".graphml": graphml.parse,
    ".gml": gml.parse,
    ".xml": sndlib.parse,
}


def read_graph(path: Path, reading: GraphReading | None = None) -> Graph[str]:
    """Read a graph file. Raise ``ScenarioError`` that names file, line and cure."""
    return parse_graph(TextFile.read(path, MAX_FILE_BYTES), reading or GraphReading())


def parse_graph(file: TextFile, reading: GraphReading) -> Graph[str]:
    """Parse a file in memory; see ``read_graph``."""
    ending = Path(file.name).suffix.lower()
    if ending not in READERS:
        known = ", ".join((*READERS, ".yaml"))
        file.refuse(None, f"'{ending}' is not the ending of a known topology format", f"one of {known}")
    return annotate(file, READERS[ending](file), reading)


__all__ = ["READERS", "GraphReading", "parse_graph", "read_graph"]
