"""Reads graph files as annotated graphs: GraphML and GML (the Internet Topology Zoo), SNDlib's XML.

Errors name the line and a cure. Harmless defects are repaired, with a note in the graph's ``notes``.
"""

from __future__ import annotations

from pathlib import Path

from testbed.axes import Axis
from topologies.graph import Graph
from topologies.readers import gml, graphml, sndlib
from topologies.readers.base import GraphReader, GraphReading
from topologies.readers.xml import MAX_FILE_BYTES
from topologies.readers.zoo import annotate
from topologies.text_file import TextFile


class GraphMl(GraphReader):
    """GraphML, as the Internet Topology Zoo writes it."""

    endings = (".graphml",)
    parse = staticmethod(graphml.parse)


class Gml(GraphReader):
    """GML, as the Internet Topology Zoo writes it."""

    endings = (".gml",)
    parse = staticmethod(gml.parse)


class SndLib(GraphReader):
    """SNDlib's XML."""

    endings = (".xml",)
    parse = staticmethod(sndlib.parse)


READERS: Axis[GraphReader] = Axis("topology", {"graphml": GraphMl, "gml": Gml, "sndlib": SndLib}, base=GraphReader)


def endings() -> dict[str, str]:
    """Return the kind of reader by file ending, such as ``.gml``."""
    return {ending: kind for kind, reader in READERS.items() for ending in reader.endings}


def read_graph(path: Path, reading: GraphReading | None = None, reader: str | None = None) -> Graph[str]:
    """Read a graph file. Raise ``ScenarioError`` that names file, line and cure.

    reader  the kind of reader; ``None`` for the one that reads files with this ending
    """
    return parse_graph(TextFile.read(path, MAX_FILE_BYTES), reading or GraphReading(), reader)


def parse_graph(file: TextFile, reading: GraphReading, reader: str | None = None) -> Graph[str]:
    """Parse a file in memory; see ``read_graph``."""
    ending = Path(file.name).suffix.lower()
    known = endings()
    if reader is None and ending not in known:
        cure = f"one of {', '.join((*known, '.yaml'))}, or name a 'reader'"
        file.refuse(None, f"'{ending}' is not the ending of a known topology format", cure)
    return annotate(file, READERS[reader or known[ending]].parse(file), reading)


__all__ = ["READERS", "GraphReading", "endings", "parse_graph", "read_graph"]
