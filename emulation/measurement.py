"""One measured value of an emulated link or path, compared with the plan; and what measuring uses of the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Protocol

from emulation.layout import Layout
from testbed.errors import NetworkMismatch
from testbed.plan.model import Plan

REPEATS = 2  # of what is outside its tolerance
FAR_OUTSIDE = 10.0  # in tolerances


class BuiltNetwork(Protocol):
    """The part of ``emulation.network.Emulation`` that measurements use.

    ``layout``: what is on this machine. ``whole``: with what is on others.
    """

    @property
    def plan(self) -> Plan: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def whole(self) -> Layout: ...
    @property
    def mtu_bytes(self) -> int: ...
    def namespace_path(self, node_name: str) -> str: ...
    def address(self, node_name: str) -> str: ...
    def measuring(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """``what`` is ``rtt`` (median, in seconds) or ``rate`` (bits per second). ``measured``: None if nothing arrived."""

    link: str
    what: str
    planned: float
    measured: float | None
    tolerance: float
    p99: float | None = None

    @property
    def off_by(self) -> float:
        """Distance from the plan in tolerances; infinite if nothing arrived."""
        return abs(self.measured - self.planned) / self.tolerance if self.measured is not None else float("inf")

    @property
    def ok(self) -> bool:
        """Whether it is within its tolerance."""
        return self.off_by <= 1.0


def describe(each: Measurement) -> str:
    """Return the measurement as a sentence."""
    scale, unit = (1e3, "ms") if each.what == "rtt" else (1e-6, "Mbit/s")
    measured = "nothing" if each.measured is None else f"{each.measured * scale:.2f} {unit}"
    name = {"rtt": "round-trip time", "rate": "rate"}[each.what]
    planned, tolerance = f"{each.planned * scale:.2f} {unit}", f"{each.tolerance * scale:.2f}"
    return f"{each.link}: {name} planned {planned}, measured {measured} (± {tolerance})"


def judge(results: Sequence[Measurement], record: Callable[..., None]) -> None:
    """Record each value, and a warning for those outside their tolerance.

    Raise ``NetworkMismatch`` if one is off by more than ``FAR_OUTSIDE`` tolerances, a fifth of a rate.
    """
    for each in results:
        record("measured", ok=each.ok, **asdict(each))
        if not each.ok:
            record("warning", message=describe(each))
    far = [describe(each) for each in results if each.off_by > FAR_OUTSIDE]
    if far:
        raise NetworkMismatch("the emulated network differs from the plan:\n  " + "\n  ".join(far))


def repeated(measure: Callable[[set[str] | None], list[Measurement]]) -> list[Measurement]:
    """Measure all (``measure(None)``), and up to ``REPEATS`` times again by name what is outside its tolerance.

    The better value counts: a busy moment of the host is no property of a link.
    """
    best = {each.link: each for each in measure(None)}
    for _ in range(REPEATS):
        outside = {name for name, each in best.items() if not each.ok}
        if not outside:
            break
        for again in measure(outside):
            best[again.link] = min(best[again.link], again, key=lambda each: each.off_by)
    return list(best.values())
