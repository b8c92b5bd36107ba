"""Broken on purpose: rates are in Mbit/s, and stated as bit/s."""

from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile


class ForgetsTheUnit(GraphReader):
    """A star: lines of a name and a rate in Mbit/s."""

    sample = "west 20\nnorth 30\n"

    @staticmethod
    def parse(file: TextFile) -> RawGraph:
        graph = RawGraph([RawVertex("hub", 1)], [])
        for line, text in file.rows:
            name, _, rate = text.partition(" ")
            if not rate:
                file.refuse(line, "expected a name and a rate", "e.g. west 20")
            graph.vertices.append(RawVertex(name, line))
            graph.edges.append(RawEdge("hub", name, line, {"LinkSpeedRaw": rate}))
        return graph
