"""Broken on purpose: a row of another number of words ends in an exception that is no refusal."""

from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile


class Unpacks(GraphReader):
    """Lines of two names and a rate in Mbit/s."""

    sample = "east west 20\neast north 30\n"

    @staticmethod
    def parse(file: TextFile) -> RawGraph:
        vertices, edges = {}, []
        for line, text in file.rows:
            first, second, rate = text.split()
            vertices |= {name: RawVertex(name, line) for name in (first, second) if name not in vertices}
            edges.append(RawEdge(first, second, line, {"LinkSpeedRaw": rate}))
        return RawGraph([*vertices.values()], edges, default_unit="Mbit/s")
