"""Traces of links: written as points, a seeded model, a file beside the scenario, or the name of a library's trace.

Reading a scenario replaces files by their points, so that a run directory needs no other file. Models stay models until
the Plan is made, because their values are multiples of the link's own value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, PlainSerializer, Tag, ValidationInfo, WrapValidator

from testbed.declaration import Problem, option, required
from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import Technique
from testbed.scenario.reading.declared import section
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import UNITS, refuse
from testbed.scenario.reading.section import ReadAs
from testbed.settings.series import Series, series_problems
from testbed.suggest import nearest
from testbed.units import format_number, parse_float
from topologies.library import LIBRARY, library_path
from topologies.traces import FORMATS, Reading, Trace, read_trace
from topologies.traces.change import looped, scaled, shifted, sped_up

_WRITTEN_AS_LIST = 20  # longer lists of points are written as one text
_MAX_TIME_S = 2_592_000.0  # 720 h
_WAYS = ("points", "model", "use", "file")  # a trace has exactly one of these keys
Points = tuple[tuple[float, float], ...]
"""Times in s, and values in SI units."""


@dataclass(frozen=True, slots=True)
class SeededTrace:
    """A trace that a seeded model generates. Its values are multiples of the link's own value."""

    model: Technique
    source: str = ""


LinkTrace = Series | SeededTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A time from which a link has another value."""

    at_s: float = required(unit="s")
    """Time since the start of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint(Point):
    """From ``at`` on, the link has ``rate``; 0 is an outage."""

    value: float = required(unit="bit/s", key="rate", or_zero=True)
    """Rate from that time on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayPoint(Point):
    """From ``at`` on, the link has ``delay``."""

    value: float = required(unit="s", max=10.0, key="delay")
    """One-way delay from that time on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPoint(Point):
    """From ``at`` on, the link has ``loss``."""

    value: float = required(unit="share", max=0.5, key="loss")
    """Loss from that time on."""


def _points(point: type[Any]) -> ReadAs:
    """Return the reader of points, which takes a list, or a text in the form that ``_packed`` writes."""
    [declared] = [field.metadata for field in fields(point) if field.name == "value"]
    what = declared["key"]
    unit = UNITS[declared["unit"]]
    low = unit.low
    high = declared.get("max", unit.high)
    or_zero = declared.get("or_zero", False)

    def read(value: Any, handler: Callable[[Any], tuple[Any, ...]]) -> Points:
        if not isinstance(value, Scalar):
            return tuple((each.at_s, each.value) for each in handler(value))
        points = _unpacked(value.text)
        if not all(0 <= at <= _MAX_TIME_S and (low <= it <= high or (or_zero and it == 0)) for at, it in points):
            raise refuse("a time or value is out of bounds", f"times up to 720 h, {what}s in [{low:g}, {high:g}]")
        return points

    def write(points: Points) -> Any:
        if len(points) > _WRITTEN_AS_LIST:
            return _packed(points)
        return [{"at": UNITS["s"].write(at), what: unit.write(value)} for at, value in points]

    items: Any = tuple[Annotated[Any, section(point)], ...]
    return ReadAs(Annotated[items, WrapValidator(read), PlainSerializer(write, when_used="json")])


def _packed(points: Points) -> str:
    """Return many points as ``step 0.1 values 5000000 …`` or ``times … values …``."""
    values = " ".join(format_number(value) for _, value in points)
    step = points[1][0]
    if all(at == round(index * step, 6) for index, (at, _) in enumerate(points)):
        return f"step {format_number(step)} values {values}"
    return f"times {' '.join(format_number(at) for at, _ in points)} values {values}"


def _unpacked(text: str) -> Points:
    """Return the points of a text that ``_packed`` wrote."""
    words = text.split()
    try:
        divide = words.index("values")
        numbers = [parse_float(word) for word in words[1:divide]]
        values = [*map(parse_float, words[divide + 1 :])]
        times = numbers if words[0] == "times" else [round(i * numbers[0], 6) for i in range(len(values))]
        return tuple(zip(times, values, strict=True))
    except (ValueError, IndexError, OverflowError):
        hint = "write a list, or 'step 0.1 values 5000000 …' in seconds and SI units"
        raise refuse("expected a list of points", hint) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTrace:
    """The keys that all traces of links have."""

    short: ClassVar[str] = "points"

    model: Technique | None = option(None, axis="trace")
    """A seeded model instead of points; its values are multiples of the link's own."""
    repeat_after_s: float = option(math.inf, unit="s", min=1e-6, absent=math.inf)
    """Time after which the trace starts again; by default the last value stays."""
    source: str = option("", absent="")
    """Where the numbers come from."""
    points: Points = ()

    def problems(self) -> Iterator[Problem]:
        if self.model is not None:
            if self.points:
                yield "points", "has no effect beside 'model'", "keep one of them"
            if math.isfinite(self.repeat_after_s):
                yield "repeat_after", "has no effect beside 'model'", "a model has its own length"
            yield from self.model.violations("model")
        elif not self.points:
            yield (), "has no points", "write a list of {at: 0 s, rate: 20 Mbit/s}, or file: NAME.csv"
        else:
            yield from series_problems([at_s for at_s, _ in self.points], self.repeat_after_s)

    def value(self) -> LinkTrace:
        if self.model is not None:
            return SeededTrace(self.model, self.source)
        times_s, values = zip(*self.points, strict=True)
        return Series(times_s=times_s, values=values, period_s=self.repeat_after_s, source=self.source)

    @classmethod
    def of(cls, trace: LinkTrace) -> WrittenTrace:
        """Return the written form of a trace; the inverse of ``value``."""
        if isinstance(trace, SeededTrace):
            return cls(model=trace.model, source=trace.source)
        points = tuple(zip(trace.times_s, trace.values, strict=True))
        return cls(points=points, repeat_after_s=trace.period_s, source=trace.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrace(WrittenTrace):
    """A rate that changes while training runs: points, a file beside the scenario, or a model."""

    points: Points = option((), form=_points(RatePoint))
    """Times and values of the rate; the first time is 0 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayTrace(WrittenTrace):
    """A delay that changes while training runs: points, a file beside the scenario, or a model."""

    points: Points = option((), form=_points(DelayPoint))
    """Times and values of the delay; the first time is 0 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTrace(WrittenTrace):
    """A loss that changes while training runs: points, a file beside the scenario, or a model."""

    points: Points = option((), form=_points(LossPoint))
    """Times and values of the loss; the first time is 0 s."""


def written_out(read: Trace, source: str, repeat_after_s: float | None = None) -> Series:
    """Return a trace that was read from a file as a series. Rates are rounded to whole bits per second."""
    values = (round(value) if read.what == "rate" else round(value, 9) for value in read.values)
    return Series(
        times_s=tuple(round(time, 6) for time in read.times_s),
        values=tuple(map(float, values)),
        period_s=repeat_after_s if repeat_after_s is not None else read.period_s,
        source=source,
    )


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What was read from a file of traces.

    name      the file, or the name of a trace in the library
    what      the quantity
    how       whether the format was ``given`` or ``detected``
    samples   number of values
    length_s  duration of the trace
    unit      unit of the values in the file
    notes     what was assumed or repaired
    """

    name: str
    what: str
    format: str
    how: str
    samples: int
    length_s: float
    unit: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A trace in a file or in the library, and how to read it."""

    file: str | None = None
    """A file in or below the scenario's folder."""
    use: str | None = option(None, choices=tuple(LIBRARY))
    """A trace of the library (testbed trace)."""
    format: str | None = option(None, kinds=FORMATS)
    """How the file is written: a format (testbed trace lists them), or ./FILE.py:Class; by default detected, if it has
    a header."""
    unit: str | None = None
    """Unit of the file's values, if it is not the usual unit of the format, e.g. kbit/s."""
    time_unit: str | None = option(None, choices=("s", "ms", "us"))
    """Unit of the file's times."""
    step_s: float | None = option(None, unit="s", min=1e-6)
    """Time over which Mahimahi's packets are counted (default 100 ms)."""
    source_name: str | None = option(None, key="from")
    """First end of the pair to pick from a file with several pairs."""
    target_name: str | None = option(None, key="to")
    """Second end of the pair to pick."""
    columns: dict[str, str] = option(dict)
    """Names of csv columns that are not recognised, by what they hold: time, from, to, rate, delay, rtt or loss, e.g.
    {rate: bw in Mbit/s}."""
    scale: float = option(1.0, min=1e-6, max=1e6)
    """Multiplies the values."""
    speed: float = option(1.0, min=1e-6, max=1e6)
    """Divides the times: 60 turns an hour into a minute."""
    offset_s: float = option(0.0, unit="s")
    """Time in the trace from which the link follows it."""
    loop: bool | None = None
    """Whether the trace starts again at its end; the default is yes for Mahimahi, Pensieve, FCC and HSDPA, no for
    others."""
    repeat_after_s: float | None = option(None, unit="s", min=1e-6)
    """Time of the run after which the trace starts again."""
    source: str | None = None
    """Where the numbers come from."""


_TRACES = {"rate": RateTrace, "delay": DelayTrace, "loss": LossTrace}


def trace(what: str) -> ReadAs:
    """Return the reader of a trace of rates, delays or losses."""

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
            step_s=named.step_s,
            source=named.source_name,
            target=named.target_name,
            columns=tuple(named.columns.items()),
        )
        try:
            read = read_trace(path, reading)
            read = looped(read, named.loop) if named.loop is not None else read
            read = sped_up(scaled(shifted(read, named.offset_s), named.scale), named.speed)
        except ScenarioError as error:
            raise refuse(str(error)) from error
        if info.context is not None:
            how = "given" if named.format else "detected"
            facts = (name, what, read.format, how, len(read.values), read.length_s, read.unit)
            found = TraceSummary(*facts, notes=read.notes[1:])
            info.context.setdefault("traces", []).append(found)
        return written_out(read, named.source or _source(name, read, named), named.repeat_after_s)

    file: Any = Annotated[TraceFile, section(TraceFile), AfterValidator(from_file), Tag("<file>")]
    written: Any = Annotated[Series, section(_TRACES[what]), Tag("<written>")]
    return ReadAs(Annotated[file | written, Discriminator(_form), BeforeValidator(_long_form)])


def _long_form(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return {"points": value}
    if isinstance(value, Scalar):
        if {".", "/"} & {*value.text}:
            raise refuse(f"'{value.text}' is not a trace of the library", f"write {{file: {value.text}}} for a file")
        return {"use": value}
    if not isinstance(value, dict):
        raise refuse("expected a mapping, a list of points or the name of a trace of the library")
    given = [key for key in _WAYS if isinstance(value, dict) and key in value]
    if len(given) > 1:
        raise refuse(f"a trace has either '{given[0]}' or '{given[1]}', not both")
    return value


def _form(value: Any) -> str:
    """Return the tag of the form that was written. An unknown key counts as the known key nearest to it."""
    if not isinstance(value, dict):
        return "<written>"
    given = [key for key in _WAYS if key in value] or [nearest(str(key), _WAYS) for key in value]
    return "<file>" if {"file", "use"} & {*given} else "<written>"


def _source(name: str, read: Trace, named: TraceFile) -> str:
    """Return the trace's name, with its format unless that is csv, and with the changes made to its values."""
    about = [read.format] if read.format != "csv" else []
    about += [note for note in read.notes[1:] if "were set to" in note]
    changes = (("scale", named.scale, 1.0), ("speed", named.speed, 1.0), ("offset", named.offset_s, 0.0))
    about += [f"{key} {value:g}" for key, value, default in changes if value != default]
    return (f"{name} ({', '.join(about)})" if about else name)[:200]
