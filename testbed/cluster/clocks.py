"""Measures the offset of another machine's clock by asking for its time, and corrects times of events by the offset.

A question leaves this machine at t1 and arrives at the other at t2; the answer leaves at t3 and arrives here at t4. As
in NTP, the offset of the other clock is ((t2 − t1) + (t3 − t4)) / 2. Its error is at most half of the round trip
(t4 − t1) − (t3 − t2), however long each direction took. The clocks drift apart by at most ``WANDER`` s per s. So a
sample is useful only if no sample near it bounds the offset more tightly. Between useful samples the offset is
interpolated, which removes a steady drift.
"""

from __future__ import annotations

import gzip
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from testbed.process_id import boot_id
from testbed.results import atomic
from testbed.results.events import PartReader, decoded

WANDER = 500e-6  # s per s: Linux corrects the rate of a clock by no more than this
_LEVEL = 3

Seconds = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class ClockSample:
    """At ``at_ns`` of this clock, the other one was ahead by ``offset_ns`` ± ``error_ns``."""

    at_ns: int
    offset_ns: int
    error_ns: int


def sample_of(asked_ns: int, arrived_ns: int, answered_ns: int, heard_ns: int) -> ClockSample:
    """Return the sample of one question. The first and last times are of this clock, the others of the other one."""
    offset_ns = ((arrived_ns - asked_ns) + (answered_ns - heard_ns)) // 2
    round_trip_ns = (heard_ns - asked_ns) - (answered_ns - arrived_ns)
    return ClockSample((asked_ns + heard_ns) // 2, offset_ns, max(1, round_trip_ns // 2))


class ClockComparison:
    """The offset of the other clock, by all samples so far. ``same``: both machines (e.g. containers) share a clock."""

    def __init__(self, same: bool = False) -> None:
        self.same = same
        self._count = 0
        self._useful: list[ClockSample] = []  # samples that no other sample bounds more tightly

    def add(self, sample: ClockSample) -> None:
        """Take a sample. Samples come in the order of time."""
        self._count += 1
        useful = self._useful
        if self.same:
            self._useful = useful or [ClockSample(sample.at_ns, 0, 0)]
        elif not (useful and _bounds(useful[-1], sample)):  # an earlier sample that did would bound the last one, too
            while useful and _bounds(sample, useful[-1]):
                useful.pop()
            useful.append(sample)

    def offset_ns(self, at_ns: int) -> float:
        """Return by how many ns the other clock was ahead at ``at_ns`` of this one."""
        return _interpolated(self._useful, at_ns)

    def correction(self, epoch_ns: int, offset_at_epoch_ns: float) -> Seconds:
        """Return a function that converts seconds of the run by the other clock to seconds of the run by this one.

        The run began at ``epoch_ns`` of this clock. The other machine took ``epoch_ns + offset_at_epoch_ns`` of its own
        clock as the start, by the offset that was known then.
        """
        knots = list(self._useful)

        def corrected(t: float) -> float:
            return t + (offset_at_epoch_ns - _interpolated(knots, epoch_ns + round(t * 1e9))) / 1e9

        return corrected

    def report(self) -> dict[str, Any]:
        """Return the manifest's description of the other clock."""
        knots = self._useful
        if not knots:
            return {"offset_s": None, "drift_ppm": None, "error_s": None, "samples": 0}
        first = knots[0]
        last = knots[-1]
        span_ns = last.at_ns - first.at_ns
        return {
            "offset_s": first.offset_ns / 1e9,
            "drift_ppm": round((last.offset_ns - first.offset_ns) / span_ns * 1e6, 3) if span_ns > 10**9 else None,
            "error_s": max(knot.error_ns for knot in knots) / 1e9,
            "samples": self._count,
        }


def _bounds(one: ClockSample, other: ClockSample) -> bool:
    """Return whether ``one`` bounds the offset more tightly than ``other`` even at the time of ``other``."""
    return one.error_ns + WANDER * abs(one.at_ns - other.at_ns) < other.error_ns


def _interpolated(knots: list[ClockSample], at_ns: int) -> float:
    """Interpolate the offset at ``at_ns``, from the two nearest knots only.

    A run of hours has tens of thousands of knots, and each event needs the offset.
    """
    if not knots:
        return 0.0
    after = bisect_left(knots, at_ns, key=lambda knot: knot.at_ns)
    near = knots[max(0, after - 1) : after + 1]
    return float(np.interp(at_ns, [knot.at_ns for knot in near], [knot.offset_ns for knot in near]))


def clock_of_machine() -> str:
    """Return a text that is equal on two machines exactly if they share a clock: same kernel and time namespace."""
    space = Path("/proc/self/ns/time")
    return f"{boot_id()} {space.readlink() if space.exists() else ''}"


_OWN = ("t", "t0", "snapshot_t", "planned_t")  # fields of events that are times by the writer's clock


def correct_file(path: Path, own: Seconds, of_node: Mapping[str, Seconds]) -> None:
    """Rewrite an event file, with all times on this machine's clock. Damaged lines stay, to be reported later.

    own      corrects times of the writer's clock
    of_node  by node, corrects times that a sender has stamped on its message: the begin of a transfer
    """
    part = PartReader(path)
    with atomic.replacing(path) as temporary, gzip.open(temporary, "wb", _LEVEL) as out:
        for line in part.lines().splitlines():
            event = next(decoded([line]), None)
            out.write((line if event is None else _corrected(event, own, of_node)) + b"\n")
        if part.damaged:
            out.write(b"damaged from here on\n")


def _corrected(event: dict[str, Any], own: Seconds, of_node: Mapping[str, Seconds]) -> bytes:
    for field in _OWN:
        if isinstance(event.get(field), int | float):
            clock = of_node.get(event.get("source", ""), own) if field == "t0" and _is_stamped(event) else own
            event[field] = round(max(0.0, clock(event[field])), 6)
    return msgspec.json.encode(event)


def _is_stamped(event: Mapping[str, Any]) -> bool:
    """Return whether the sender stamped the begin of a transfer. Transfers by a library have no header of ours."""
    return event.get("kind") == "transfer" and event.get("header_bytes") != 0
