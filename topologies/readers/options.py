"""What a graph file does not say, and a user may."""

from __future__ import annotations

from dataclasses import dataclass

RATE_UNITS = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReading:
    """How to read a graph file.

    rate_bps   of links without a rate of their own; None: they are refused
    delay_s    of links whose ends have no coordinates; None: they are refused
    stretch    length of a fibre over the great circle between its ends (real ones: 1.2 to 2)
    rate_unit  of LinkSpeedRaw (bit/s unless said) or of SNDlib's capacities (Mbit/s unless said)
    sites      the vertices (by name or label) that are data centres; None: all
    external   keep vertices that the Topology Zoo marks as other networks (Internal 0)
    central    the data centre of the global server; None: the one that is nearest to all others
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
