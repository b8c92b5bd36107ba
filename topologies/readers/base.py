"""The contract of a reader of graph files; ``docs/axes/topology.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from topologies.readers.options import GraphReading
from topologies.readers.raw import RawGraph
from topologies.traces.model import TextFile


class GraphReader(ABC):
    """Reads one format into vertices and edges with texts by key; rates and delays are derived from those texts.

    The keys are those of the Internet Topology Zoo: ``label``, ``Latitude``, ``Longitude`` (degrees) and ``Internal``
    of a vertex; ``LinkSpeedRaw`` (in ``RawGraph.default_unit``) or ``LinkSpeed``/``LinkSpeedUnits`` of an edge.

    endings  of files that are read by it without being named, in lower case with the dot
    sample   the text of a small file, which ``testbed check`` reads
    """

    Options: ClassVar = GraphReading
    endings: ClassVar[tuple[str, ...]] = ()
    sample: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def parse(file: TextFile) -> RawGraph:
        """Return the graph of ``file``. Refuse it with ``file.refuse(line, problem, cure)``."""
