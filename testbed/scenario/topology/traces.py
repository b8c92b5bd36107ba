"""Traces written out in a scenario: points, or a seeded model.

Models remain models until the Plan is made, for their values are multiples of a link's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, PlainSerializer, create_model

from testbed.scenario.reading.axes import Technique, axis
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.quantities import DELAY, DURATION, INSTANT, LOSS, RATE_OR_OUTAGE, TEXT, FieldType, refuse
from testbed.scenario.reading.section import Made, Section
from testbed.scenario.reading.violations import Violation, series_violations
from testbed.units import parse_float
from topologies.traces import Trace
from topologies.traces.synthetic import SYNTHETIC

_WRITTEN_AS_LIST = 20  # more points than these are written as one text
_BOUNDS = {"rate": (1e3, 1e12), "delay": (0.0, 10.0), "loss": (0.0, 0.5)}
_MAX_TIME_S = 2_592_000.0  # 720 h


class Point(Section):
    """A time, from which on a link has another value."""

    what: ClassVar[str]

    at: Annotated[float, INSTANT]
    """Time since the start of training."""

    @property
    def value(self) -> float:
        """The rate, delay or loss."""
        return float(getattr(self, self.what))

    @classmethod
    def trusted(cls, at_s: float, value: float) -> Self:
        """Return a point whose values are known to be good."""
        values: dict[str, Any] = {"at": at_s, cls.what: value}
        return cls.model_construct(**values)


def _pack(points: tuple[Point, ...]) -> Any:
    """Return few points as they are written by hand; many as ``step 0.1 values 5000000 …`` or ``times … values …``."""
    if len(points) <= _WRITTEN_AS_LIST:
        return [point.model_dump(mode="json") for point in points]
    times = [point.at for point in points]
    values = " ".join(_plain(point.value) for point in points)
    step = times[1]
    if all(time == round(index * step, 6) for index, time in enumerate(times)):
        return f"step {_plain(step)} values {values}"
    return f"times {' '.join(map(_plain, times))} values {values}"


def _plain(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _unpacker(point: type[Point]) -> BeforeValidator:
    """Return the inverse of ``_pack``, with the bounds that single points have."""

    def unpack(value: Any) -> Any:
        if not isinstance(value, Scalar):
            return value
        words = value.text.split()
        try:
            divide = words.index("values")
            numbers, values = [parse_float(word) for word in words[1:divide]], [*map(parse_float, words[divide + 1 :])]
            times = numbers if words[0] == "times" else [round(i * numbers[0], 6) for i in range(len(values))]
            pairs = list(zip(times, values, strict=True))
        except (ValueError, IndexError, OverflowError):
            hint = "write a list, or 'step 0.1 values 5000000 …' in seconds and SI units"
            raise refuse("expected a list of points", hint) from None
        low, high = _BOUNDS[point.what]
        outage = point.what == "rate"  # 0 is one
        if not all(0 <= at <= _MAX_TIME_S and (low <= it <= high or (outage and it == 0)) for at, it in pairs):
            raise refuse("a time or value is out of bounds", f"times up to 720 h, {point.what}s in [{low:g}, {high:g}]")
        return tuple(point.trusted(time, amount) for time, amount in pairs)

    return BeforeValidator(unpack)


_PACKED = PlainSerializer(_pack, when_used="json")


class LinkTrace(Section):
    """What all traces of a link have."""

    model: Annotated[Technique | None, axis("trace model", SYNTHETIC)] = None
    """A seeded model instead of points; its values are multiples of the link's own."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Time after which it starts again; by default the last value stays."""
    source: Annotated[str | None, TEXT] = None
    """Where the numbers come from."""

    def _violations(self) -> Iterator[Violation]:
        points: tuple[Point, ...] = getattr(self, "points", ())
        if self.model is not None:
            if points:
                yield Violation(("points",), "has no effect beside 'model'", "keep one of them")
            if self.repeat_after is not None:
                yield Violation(("repeat_after",), "has no effect beside 'model'", "a model has its own length")
            yield from self.model.violations("model")
            return
        if not points:
            yield Violation((), "has no points", "write a list of {at: 0 s, rate: 20 Mbit/s}, or file: NAME.csv")
            return
        yield from series_violations([point.at for point in points], self.repeat_after)


def _sections(what: str, quantity: FieldType) -> tuple[type[Any], type[Point]]:
    """Return the sections of a trace of rates, delays or losses, and of its points."""
    fields: dict[str, Any] = {what: (Annotated[float, quantity], Field(description="Value from then on."))}
    about = f"From ``at`` on, the link has ``{what}``."
    point: Any = create_model(f"{what.title()}Point", __base__=(Point, Made), __doc__=about, **fields)
    point.what = what
    points: Any = Annotated[tuple[point, ...], _unpacker(point), _PACKED]
    described = Field(default=(), description=f"Times and values of the {what}; the first time is 0 s.")
    about = f"A {what} that changes while training runs: points, a file beside the scenario, or a model."
    bases: Any = (LinkTrace, Made)
    return create_model(f"{what.title()}Trace", __base__=bases, __doc__=about, points=(points, described)), point


SECTIONS = {
    what: _sections(what, quantity) for what, quantity in (("rate", RATE_OR_OUTAGE), ("delay", DELAY), ("loss", LOSS))
}


def written_out(read: Trace, source: str, repeat_after: float | None = None) -> Any:
    """Return a trace as a section of the scenario; rates in whole bits per second."""
    section, point = SECTIONS[read.what]
    values = (round(value) if read.what == "rate" else round(value, 9) for value in read.values)
    points = tuple(
        point.trusted(round(time, 6), float(value)) for time, value in zip(read.times_s, values, strict=True)
    )
    period = repeat_after if repeat_after is not None else read.period_s
    return section(points=points, repeat_after=None if period == math.inf else period, source=source)
