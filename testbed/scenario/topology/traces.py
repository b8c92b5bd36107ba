"""Traces of a scenario: points, a seeded model, a file beside the scenario, or one of the library.

Files are read with the scenario; points remain, so that a run directory needs no other file. Models remain models until
the Plan is made, for their values are multiples of a link's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    create_model,
)

from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import Technique, axis, kind_of
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import (
    BOOLEAN,
    DELAY,
    DURATION,
    INSTANT,
    LOSS,
    RATE_OR_OUTAGE,
    TEXT,
    FieldType,
    number,
    one_of,
    refuse,
)
from testbed.scenario.reading.section import Made, ReadAs, Section
from testbed.scenario.reading.suggest import nearest
from testbed.scenario.reading.violations import Violation, series_violations
from testbed.units import format_number, parse_float
from topologies.library import LIBRARY, library_path
from topologies.traces import FORMATS, Reading, Trace, read_trace
from topologies.traces.change import looped, scaled, shifted, sped_up
from topologies.traces.synthetic import SYNTHETIC

_FACTOR = number(1e-6, 1e6)
_WRITTEN_AS_LIST = 20  # more points than these are written as one text
_BOUNDS = {"rate": (1e3, 1e12), "delay": (0.0, 10.0), "loss": (0.0, 0.5)}
_MAX_TIME_S = 2_592_000.0  # 720 h
_WAYS = ("points", "model", "use", "file")  # to say what a trace is


class Point(Section):
    """A time, from which on a link has another value."""

    what: ClassVar[str]

    at: Annotated[float, INSTANT]
    """Time since the start of training."""

    @property
    def value(self) -> float:
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
    values = " ".join(format_number(point.value) for point in points)
    step = times[1]
    if all(time == round(index * step, 6) for index, time in enumerate(times)):
        return f"step {format_number(step)} values {values}"
    return f"times {' '.join(map(format_number, times))} values {values}"


def _unpacker(point: type[Point]) -> BeforeValidator:
    """Return the inverse of ``_pack``, with the bounds that single points have."""

    def unpack(value: Any) -> Any:
        if not isinstance(value, Scalar):
            return value
        words = value.text.split()
        try:
            divide = words.index("values")
            numbers = [parse_float(word) for word in words[1:divide]]
            values = [*map(parse_float, words[divide + 1 :])]
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


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What was read from a file: its format, and whether that was given or detected; samples; duration; unit.

    ``notes``: what was assumed or repaired.
    """

    name: str
    what: str
    format: str
    how: str
    samples: int
    length_s: float
    unit: str
    notes: tuple[str, ...] = ()


class TraceFile(Section):
    """A trace in a file or in the library, and how to read it."""

    file: Annotated[str | None, TEXT] = None
    """A file in or below the scenario's folder."""
    use: Annotated[str | None, one_of(*LIBRARY)] = None
    """A trace of the library (testbed trace)."""
    format: kind_of(FORMATS) = None  # type: ignore[valid-type]
    """How the file is written: a format (testbed trace lists them), or ./FILE.py:Class; by default detected, if it has
    a header."""
    unit: Annotated[str | None, TEXT] = None
    """Unit of the file's values, where it is not the format's own, e.g. kbit/s."""
    time_unit: Annotated[str | None, one_of("s", "ms", "us")] = None
    """Unit of the file's times."""
    step: Annotated[float | None, DURATION] = None
    """Time over which Mahimahi's packets are counted (default 100 ms)."""
    source_name: Annotated[str | None, TEXT] = Field(default=None, alias="from")
    """The pair to pick from a file of many: its first end."""
    target_name: Annotated[str | None, TEXT] = Field(default=None, alias="to")
    """Its second end."""
    columns: dict[str, Annotated[str, TEXT]] = Field(default_factory=dict)
    """Columns of a csv whose names do not tell what they hold, by time, from, to, rate, delay, rtt or loss, e.g. {rate:
    bw in Mbit/s}."""
    scale: Annotated[float, _FACTOR] = 1.0
    """Multiplies the values."""
    speed: Annotated[float, _FACTOR] = 1.0
    """Divides the times: 60 makes an hour a minute."""
    offset: Annotated[float, INSTANT] = 0.0
    """Time in the trace at which it begins."""
    loop: Annotated[bool | None, BOOLEAN] = None
    """Start again at its end; the default is yes for Mahimahi, Pensieve, FCC and HSDPA, no for others."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Time of the run after which it starts again."""
    source: Annotated[str | None, TEXT] = None
    """Where the numbers come from."""


def trace(what: str) -> ReadAs:
    """Return what a scenario may write for a trace of rates, delays or losses."""
    section: Any = SECTIONS[what][0]

    def from_file(named: TraceFile, info: ValidationInfo) -> Any:
        name = named.file or named.use
        if name is None:
            raise refuse("has neither 'file' nor 'use'", "write file: NAME.csv, or the name of a trace of the library")
        path = beside(named.file, info) if named.file else library_path(name)
        reading = Reading(
            what=what,
            format=named.format,
            unit=named.unit,
            time_unit=named.time_unit,
            step_s=named.step,
            source=named.source_name,
            target=named.target_name,
            columns=tuple(named.columns.items()),
        )
        try:
            read = read_trace(path, reading)
            read = looped(read, named.loop) if named.loop is not None else read
            read = sped_up(scaled(shifted(read, named.offset), named.scale), named.speed)
        except ScenarioError as error:
            raise refuse(str(error)) from error
        if info.context is not None:
            how = "given" if named.format else "detected"
            facts = (name, what, read.format, how, len(read.values), read.length_s, read.unit)
            found = TraceSummary(*facts, notes=read.notes[1:])
            info.context.setdefault("traces", []).append(found)
        return written_out(read, named.source or _source(name, read, named), named.repeat_after)

    file: Any = Annotated[TraceFile, AfterValidator(from_file), Tag("<file>")]
    written: Any = Annotated[section, Tag("<written>")]
    return ReadAs(Annotated[file | written, Discriminator(_form), BeforeValidator(_long_form)])


def _long_form(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return {"points": value}
    if isinstance(value, Scalar):
        return {"use": value}
    if not isinstance(value, dict | LinkTrace):
        raise refuse("expected a mapping, a list of points or the name of a trace of the library")
    given = [key for key in _WAYS if isinstance(value, dict) and key in value]
    if len(given) > 1:
        raise refuse(f"a trace has either '{given[0]}' or '{given[1]}', not both")
    return value


def _form(value: Any) -> str:
    """Return the tag of the section that is written; a key that is none counts as the one that was meant."""
    if not isinstance(value, dict):
        return "<written>"
    given = [key for key in _WAYS if key in value] or [nearest(str(key), _WAYS) for key in value]
    return "<file>" if {"file", "use"} & {*given} else "<written>"


def _source(name: str, read: Trace, named: TraceFile) -> str:
    """Return the name, with the format unless it is the testbed's own, and with what was changed."""
    about = [read.format] if read.format != "csv" else []
    about += [note for note in read.notes[1:] if "were set to" in note]
    changes = (("scale", named.scale, 1.0), ("speed", named.speed, 1.0), ("offset", named.offset, 0.0))
    about += [f"{key} {value:g}" for key, value, default in changes if value != default]
    return (f"{name} ({', '.join(about)})" if about else name)[:200]
