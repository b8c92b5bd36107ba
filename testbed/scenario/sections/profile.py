"""What a model's layers take on a device, from a CSV file beside the scenario, as ``testbed profile`` writes it."""

from __future__ import annotations

import json
from typing import Any

from testbed.scenario.reading.tables import number_of, rows_of, table
from topologies.traces.model import TextFile

HEADER = "segment,forward_us,backward_us"
_LONGEST_US = 3600e6
Layers = tuple[tuple[float, float], ...]
"""Seconds forward and backward, by segment."""


def _of_file(file: TextFile) -> Layers:
    if not file.rows or ",".join(cell.strip() for cell in file.rows[0][1].split(",")) != HEADER:
        file.refuse(None, f"expected the header '{HEADER}'", "'testbed profile' writes such a file")
    layers = tuple(
        (_seconds(file, line, forward), _seconds(file, line, backward))
        for line, (_, forward, backward) in rows_of(file, 3, "segment")
    )
    if not sum(map(sum, layers)):
        file.refuse(None, "no time is above 0", "'testbed profile' writes such a file")
    return layers


def _seconds(file: TextFile, line: int, cell: str) -> float:
    time_us = number_of(file, line, cell)
    if not 0 <= time_us <= _LONGEST_US:
        file.refuse(line, f"{cell} is outside [0, {_LONGEST_US:g}] us")
    return time_us * 1e-6


def _unpacked(text: str) -> Layers:
    layers = tuple((float(forward), float(backward)) for forward, backward in json.loads(text or "[]"))
    times_s = [time_s for layer in layers for time_s in layer]
    if not all(0 <= time_s <= _LONGEST_US * 1e-6 for time_s in times_s) or (times_s and not any(times_s)):
        raise ValueError("a time outside [0 s, 1 h], or none above 0")
    return layers


PROFILE: Any = table(
    Layers,
    _of_file,
    (lambda layers: json.dumps(layers) if layers else "", _unpacked),
    empty=(),
    what="times of layers from 0 s to 1 h",
    made_by=", as 'testbed profile' makes it",
)
