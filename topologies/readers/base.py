"""The contract of a reader of graph files, and its settings; ``docs/axes/topology.md`` has a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from topologies.readers.raw import RawGraph
from topologies.text_file import TextFile

RATE_UNITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReading:
    """Settings for reading a graph file.

    rate_bps   of links without a rate in the file; None: they are refused
    delay_s    of links whose ends have no coordinates; None: they are refused
    stretch    length of a fibre over the great circle between its ends (real ones: 1.2 to 2)
    rate_unit  of LinkSpeedRaw (default bit/s) or of SNDlib's capacities (default Mbit/s)
    sites      the vertices that are data centres, by the names made from their labels; None: all
    external   keep vertices that the Topology Zoo marks as other networks (Internal 0)
    central    the data centre of the global server; None: the nearest to all others
    workers    in each data centre
    """

    rate_bps: float | None = None
    delay_s: float | None = None
    stretch: float = 1.5
    rate_unit: str | None = None
    sites: tuple[str, ...] | None = None
    external: bool = False
    central: str | None = None
    workers: int = 2


class GraphReader(ABC):
    """Reads one format into vertices and edges with texts by key; rates and delays are derived from those texts.

    The keys are those of the Internet Topology Zoo: ``label``, ``Latitude``, ``Longitude`` (degrees) and ``Internal``
    of a vertex; ``LinkSpeedRaw`` (in ``RawGraph.default_unit``) or ``LinkSpeed``/``LinkSpeedUnits`` of an edge. Those
    of Shadow: ``host_bandwidth_up``, ``host_bandwidth_down`` of a vertex; ``latency``, ``packet_loss`` of an edge.

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
