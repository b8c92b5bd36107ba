"""Rates, delays and losses of a link over time: read from files, made by seeded models, and converted.

``read_trace`` detects the format and notes it in the trace; ``Reading.format`` overrides the detection. Whatever the
units of the file, a ``Trace`` has bits per second, seconds one way, or a share.
"""

from __future__ import annotations

from topologies.traces.formats import FORMATS, parse_trace, read_trace
from topologies.traces.formats.own import NetworkTraces, read_network_traces
from topologies.traces.model import MAX_POINTS, Reading, Trace

__all__ = [
    "FORMATS",
    "MAX_POINTS",
    "NetworkTraces",
    "Reading",
    "Trace",
    "parse_trace",
    "read_network_traces",
    "read_trace",
]
