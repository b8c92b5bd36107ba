"""Broken on purpose: vertices of files that were read before come again."""

from typing import ClassVar

from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile


class Remembers(GraphReader):
    """Lines of two names."""

    sample = "east west\neast north\n"
    seen: ClassVar[list[RawVertex]] = []

    @staticmethod
    def parse(file: TextFile) -> RawGraph:
        edges = []
        for line, text in file.rows:
            first, _, second = text.partition(" ")
            if not second:
                file.refuse(line, "expected two names", "e.g. east west")
            Remembers.seen += [RawVertex(first, line), RawVertex(second, line)]
            edges.append(RawEdge(first, second, line))
        return RawGraph(list(Remembers.seen), edges)
