"""Settings for what a graph file does not state."""

from __future__ import annotations

from dataclasses import dataclass

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
