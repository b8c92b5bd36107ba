from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex


class Pairs(GraphReader):
    """Lines of two names and a rate in Mbit/s."""

    sample = "east west 20\neast north 30\n"

    @staticmethod
    def parse(file):
        names, edges = {}, []
        for line, text in file.rows:
            words = text.split()
            if len(words) != 3:
                file.refuse(line, f"expected two names and a rate, got '{text}'", "e.g. east west 20")
            names |= dict.fromkeys(words[:2], line)
            edges.append(RawEdge(words[0], words[1], line, {"LinkSpeedRaw": words[2]}))
        return RawGraph([RawVertex(name, line) for name, line in names.items()], edges, default_unit="Mbit/s")
