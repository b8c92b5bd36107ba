"""Properties of links that a graph file states, as for the network simulator Shadow: latency, packet loss, bandwidth.

Source: Shadow's network graph specification (shadow.github.io/docs/guide/network_graph_spec.html). Numbers of Shadow 1
are without units: milliseconds, and KiB/s.
"""

from __future__ import annotations

from topologies.foreign_units import quantity_of
from topologies.readers.raw import RawEdge, RawVertex
from topologies.text_file import TextFile
from topologies.traces.model import LIMITS

_DELAYS = ("latency", "delay")
_LOSSES = ("packet_loss", "packetloss", "loss")
_RATES = ("bandwidth", "capacity")
_HOST_RATES = {"up": ("host_bandwidth_up", "bandwidthup"), "down": ("host_bandwidth_down", "bandwidthdown")}
_MS = ("time", 1e-3)
_KIB_PER_S = ("rate", 8192.0)
_NOTHING = ("", "None", "?")


def delay_of(file: TextFile, edge: RawEdge) -> float | None:
    """Return the stated one-way delay of an edge (s), or ``None``. Raise ``ScenarioError`` with the line if invalid."""
    found = _stated(file, edge, _DELAYS, "time", "50 ms", _MS)
    return _within(file, edge, "delay", found)


def loss_of(file: TextFile, edge: RawEdge) -> float | None:
    """Return the stated share of lost packets, or ``None``. Raise ``ScenarioError`` with the line if invalid."""
    found = _stated(file, edge, _LOSSES, "share", "0.01", ("share", 1.0))
    return _within(file, edge, "loss", found)


def bandwidth_of(file: TextFile, edge: RawEdge) -> float | None:
    """Return the stated rate of an edge (bit/s), or ``None``. Raise ``ScenarioError`` with the line without a unit."""
    return _stated(file, edge, _RATES, "rate", "100 Mbit", None)


def host_bandwidth_of(file: TextFile, vertex: RawVertex, way: str) -> float | None:
    """Return the stated rate of hosts at a vertex (bit/s), or ``None``. Raise ``ScenarioError`` with the line.

    way  ``up`` or ``down``
    """
    return _stated(file, vertex, _HOST_RATES[way], "rate", "100 Mbit", _KIB_PER_S)


def _stated(
    file: TextFile,
    holder: RawEdge | RawVertex,
    keys: tuple[str, ...],
    dimension: str,
    example: str,
    unit: tuple[str, float] | None,
) -> float | None:
    """Return the value of the first of ``keys`` that is stated, in SI units, or ``None``.

    unit  the unit of a number without one; ``None`` refuses such numbers
    """
    key = next((key for key in keys if holder.data.get(key, "").strip() not in _NOTHING), None)
    if key is None:
        return None
    text = holder.data[key].strip()
    found = quantity_of(text)
    known = found[1] or unit if found else None
    if found is None or known is None or known[0] != dimension:
        why = "has no unit" if found and found[1] is None else f"is no {dimension}"
        file.refuse(holder.line, f"{key} '{text[:30]}' {why}", f'write {key} "{example}"')
    return found[0] * known[1]


def _within(file: TextFile, edge: RawEdge, what: str, value: float | None) -> float | None:
    low, high, unit = LIMITS[what]
    if value is not None and not low <= value <= high:
        file.refuse(edge.line, f"a {what} of {value:g} {unit} is outside [{low:g}, {high:g}]", "correct it")
    return value
