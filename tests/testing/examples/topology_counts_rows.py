"""Broken on purpose: rows are counted, which are fewer than the lines of the file."""

from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile


class CountsRows(GraphReader):
    """Lines of two names and a rate in Mbit/s."""

    sample = "east west 20\neast north 30\n"

    @staticmethod
    def parse(file: TextFile) -> RawGraph:
        vertices, edges = {}, []
        for line, (_, text) in enumerate(file.rows, start=1):
            words = text.split()
            if len(words) != 3:
                file.refuse(line, f"expected two names and a rate, got '{text}'", "e.g. east west 20")
            vertices |= {name: RawVertex(name, line) for name in words[:2] if name not in vertices}
            edges.append(RawEdge(words[0], words[1], line, {"LinkSpeedRaw": words[2]}))
        return RawGraph([*vertices.values()], edges, default_unit="Mbit/s")
