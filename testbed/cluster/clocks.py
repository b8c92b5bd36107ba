"""How the clock of another machine differs from this one's, from round trips of a question; and events corrected by it.

A question leaves here at t1, arrives there at t2, is answered at t3, and the answer is here at t4. As in NTP, the
offset of the other clock is ((t2 − t1) + (t3 − t4)) / 2, and it is wrong by at most half of the round trip
(t4 − t1) − (t3 − t2), whatever the two directions took. Between two questions clocks drift apart by at most ``WANDER``.
So a question is of use only if no other near it bounds the offset more tightly; between useful ones the offset is
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

WANDER = 500e-6  # s per s: as fast as Linux lets a clock be corrected
_LEVEL = 3

Seconds = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class ClockSample:
    """At ``at_ns`` of this clock the other one was ahead by ``offset_ns``, give or take ``error_ns``."""

    at_ns: int
    offset_ns: int
    error_ns: int


def sample_of(asked_ns: int, arrived_ns: int, answered_ns: int, heard_ns: int) -> ClockSample:
    """Return what one question shows: the first and the last time are of this clock, the others of the other."""
    offset_ns = ((arrived_ns - asked_ns) + (answered_ns - heard_ns)) // 2
    round_trip_ns = (heard_ns - asked_ns) - (answered_ns - arrived_ns)
    return ClockSample((asked_ns + heard_ns) // 2, offset_ns, max(1, round_trip_ns // 2))


class ClockComparison:
    """The other clock, from all questions so far. ``same``: both machines have one clock, as containers of one host."""

    def __init__(self, same: bool = False) -> None:
        self.same = same
        self._count = 0
        self._useful: list[ClockSample] = []  # that no other bounds more tightly

    def add(self, sample: ClockSample) -> None:
        """Take a sample; they come in the order of time."""
        self._count += 1
        useful = self._useful
        if self.same:
            self._useful = useful or [ClockSample(sample.at_ns, 0, 0)]
        elif not (useful and _bounds(useful[-1], sample)):  # one before the last would bound the last as well
            while useful and _bounds(sample, useful[-1]):
                useful.pop()
            useful.append(sample)

    def offset_ns(self, at_ns: int) -> float:
        """Return how far the other clock was ahead at ``at_ns`` of this one."""
        return _interpolated(self._useful, at_ns)

    def correction(self, epoch_ns: int, offset_at_epoch_ns: float) -> Seconds:
        """Return the function from seconds of the run by the other clock to those by this one.

        The run began at ``epoch_ns`` of this clock, and at ``epoch_ns + offset_at_epoch_ns`` of the other one, as was
        thought at the start.
        """
        knots = list(self._useful)

        def corrected(t: float) -> float:
            return t + (offset_at_epoch_ns - _interpolated(knots, epoch_ns + round(t * 1e9))) / 1e9

        return corrected

    def report(self) -> dict[str, Any]:
        """Return what the manifest says of this clock."""
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
    """Return whether ``one`` bounds the offset more tightly at the time of ``other``, too."""
    return one.error_ns + WANDER * abs(one.at_ns - other.at_ns) < other.error_ns


def _interpolated(knots: list[ClockSample], at_ns: int) -> float:
    """Look at two knots alone: a run of hours has tens of thousands, and asks for every event."""
    if not knots:
        return 0.0
    after = bisect_left(knots, at_ns, key=lambda knot: knot.at_ns)
    near = knots[max(0, after - 1) : after + 1]
    return float(np.interp(at_ns, [knot.at_ns for knot in near], [knot.offset_ns for knot in near]))


def clock_of_machine() -> str:
    """Return a text that two machines share exactly if they have one clock: of one kernel, in one time namespace."""
    space = Path("/proc/self/ns/time")
    return f"{boot_id()} {space.readlink() if space.exists() else ''}"


_OWN = ("t", "t0", "snapshot_t", "planned_t")  # fields of events that are times by the writer's clock


def correct_file(path: Path, own: Seconds, of_node: Mapping[str, Seconds]) -> None:
    """Write a file of events anew, with all its times by this machine's clock. Damaged lines stay, to be reported.

    own      corrects times by the writer's clock
    of_node  those by a sender's, who has stamped its message: the begin of a transfer
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
    """Return whether the sender has said when a transfer began. What a library has moved has no header of ours."""
    return event.get("kind") == "transfer" and event.get("header_bytes") != 0
