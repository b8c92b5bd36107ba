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

    rate_bps   of links without a rate in the file; ``None`` refuses them
    delay_s    of links without a latency whose ends have no coordinates; ``None`` refuses them
    stretch    length of a fibre over the great circle between its ends (for real fibres, 1.2 to 2)
    rate_unit  of LinkSpeedRaw (default bit/s) or of SNDlib's capacities (default Mbit/s)
    sites      the vertices that are data centres, by the names made from their labels; ``None``: all
    external   keep vertices that the Topology Zoo marks as belonging to other networks (Internal 0)
    central    the data centre of the global server; ``None``: the nearest to all others
    workers    number of workers in each data centre
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
    """Reads one format into vertices and edges with texts by key. Rates and delays are derived from these texts.

    Keys of the Internet Topology Zoo are ``label``, ``Latitude``, ``Longitude`` (degrees) and ``Internal`` of a vertex,
    and ``LinkSpeedRaw`` (in ``RawGraph.default_unit``) or ``LinkSpeed``/``LinkSpeedUnits`` of an edge. Keys of Shadow
    are ``host_bandwidth_up`` and ``host_bandwidth_down`` of a vertex, and ``latency`` and ``packet_loss`` of an edge.

    endings  of files that this reader reads by default, in lower case with the dot
    sample   the text of a small file, which ``testbed check`` reads
    """

    Options: ClassVar = GraphReading
    endings: ClassVar[tuple[str, ...]] = ()
    sample: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def parse(file: TextFile) -> RawGraph:
        """Return the graph of ``file``. Refuse it with ``file.refuse(line, problem, cure)``."""
