"""Traces in a scenario: points written out, a file beside it, one of the library, or a seeded model.

Files are read when the scenario is; what remains are points, so that a run directory needs no other file. Models
remain models until the Plan is made, for their values are multiples of a link's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    model_validator,
)

from testbed.errors import ScenarioError
from testbed.scenario.axes import AxisSchema, Section, Technique, axis
from testbed.scenario.document import Scalar
from testbed.scenario.files import beside
from testbed.scenario.quantities import (
    BOOLEAN,
    DELAY,
    DURATION,
    INSTANT,
    LOSS,
    RATE,
    TEXT,
    number,
    one_of,
    refuse,
)
from testbed.scenario.rules import check_trace
from topologies.library import LIBRARY, library_path
from topologies.traces import FORMATS, Reading, Trace, read_trace
from topologies.traces.change import looped, scaled, shifted, sped_up
from topologies.traces.synthetic import SYNTHETIC

WRITTEN_OUT = 20  # more points than these are written as one text
_FACTOR = number(0, 1e6, above=True)


class TracePoint(Section):
    """From ``at`` on, the link has ``rate``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    rate: Annotated[float, RATE]
    """Rate from then on."""


class DelayPoint(Section):
    """From ``at`` on, the link has ``delay``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    delay: Annotated[float, DELAY]
    """One-way delay from then on."""


class LossPoint(Section):
    """From ``at`` on, the link has ``loss``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    loss: Annotated[float, LOSS]
    """Share of packets lost from then on."""


Point = TracePoint | DelayPoint | LossPoint


def pack(points: tuple[Point, ...]) -> Any:
    """A few points as they are written by hand; many as ``step 0.1 values 5000000 …`` or ``times … values …``."""
    if len(points) <= WRITTEN_OUT:
        return [point.model_dump(mode="json") for point in points]
    times = [point.at for point in points]
    values = " ".join(_plain(value_of(point)) for point in points)
    step = times[1]
    if all(time == round(index * step, 6) for index, time in enumerate(times)):
        return f"step {_plain(step)} values {values}"
    return f"times {' '.join(map(_plain, times))} values {values}"


def _plain(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def value_of(point: Point) -> float:
    """The rate, delay or loss of a point."""
    if isinstance(point, TracePoint):
        return point.rate
    return point.delay if isinstance(point, DelayPoint) else point.loss


def _point(kind: type[Any], at: float, key: str, value: float) -> Any:
    """A point whose values are known to be good."""
    values: dict[str, Any] = {"at": at, key: value}
    return kind.model_construct(**values)


def _unpacker(point: type[Point], key: str) -> BeforeValidator:
    """Reads what ``pack`` writes; every point is validated as if it stood there."""

    def unpack(value: Any) -> Any:
        if not isinstance(value, Scalar):
            return value
        words = value.text.split()
        try:
            divide = words.index("values")
            numbers, values = [float(word) for word in words[1:divide]], [float(word) for word in words[divide + 1 :]]
            times = numbers if words[0] == "times" else [round(i * numbers[0], 6) for i in range(len(values))]
            pairs = list(zip(times, values, strict=True))
        except (ValueError, IndexError, OverflowError):
            hint = "write a list, or 'step 0.1 values 5000000 …' in seconds and SI units"
            raise refuse("expected a list of points", hint) from None
        low, high = _BOUNDS[key]
        if not all(0 <= time <= 2_592_000 and low <= amount <= high for time, amount in pairs):
            raise refuse("a time or value is out of bounds", f"times up to 720 h, {key}s in [{low:g}, {high:g}]")
        return tuple(_point(point, time, key, amount) for time, amount in pairs)

    return BeforeValidator(unpack)


_BOUNDS = {"rate": (1e3, 1e12), "delay": (0.0, 10.0), "loss": (0.0, 0.5)}
_PACKED = PlainSerializer(pack, when_used="json")


class AnyTrace(Section):
    """What all traces have."""

    model: Annotated[Technique | None, axis("trace model", SYNTHETIC)] = None
    """A seeded model instead of points; its values are multiples of the link's own."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Start again after so long; otherwise the last value stays."""
    source: Annotated[str | None, TEXT] = None
    """Where the numbers come from."""


class RateTrace(AnyTrace):
    """A rate that changes while training runs: points, a file beside the scenario, or a model."""

    points: Annotated[tuple[TracePoint, ...], _unpacker(TracePoint, "rate"), _PACKED] = ()
    """Times and rates; the first time is 0 s."""

    _rules = model_validator(mode="after")(check_trace)


class DelayTrace(AnyTrace):
    """A delay that changes while training runs."""

    points: Annotated[tuple[DelayPoint, ...], _unpacker(DelayPoint, "delay"), _PACKED] = ()
    """Times and one-way delays; the first time is 0 s."""

    _rules = model_validator(mode="after")(check_trace)


class LossTrace(AnyTrace):
    """A loss that changes while training runs."""

    points: Annotated[tuple[LossPoint, ...], _unpacker(LossPoint, "loss"), _PACKED] = ()
    """Times and losses; the first time is 0 s."""

    _rules = model_validator(mode="after")(check_trace)


class TraceFile(Section):
    """A trace that stands elsewhere, and how to read it."""

    file: Annotated[str | None, TEXT] = None
    """A file in or below the scenario's folder."""
    use: Annotated[str | None, one_of(*LIBRARY)] = None
    """A trace of the library (testbed trace)."""
    format: Annotated[str | None, one_of(*FORMATS)] = None
    """How the file is written; found out unless said, and the Plan says what it was taken for."""
    unit: Annotated[str | None, TEXT] = None
    """Unit of the file's values, where it is not the format's own, e.g. kbit/s."""
    time_unit: Annotated[str | None, one_of("s", "ms", "us")] = None
    """Unit of the file's times."""
    step: Annotated[float | None, DURATION] = None
    """Time over which Mahimahi's packets are counted (100 ms unless said)."""
    source_name: Annotated[str | None, TEXT] = Field(default=None, alias="from")
    """The pair to pick from a file of many: its first end."""
    target_name: Annotated[str | None, TEXT] = Field(default=None, alias="to")
    """Its second end."""
    scale: Annotated[float, _FACTOR] = 1.0
    """Multiplies the values."""
    speed: Annotated[float, _FACTOR] = 1.0
    """Divides the times: 60 makes an hour a minute."""
    offset: Annotated[float, INSTANT] = 0.0
    """Begin so far into the trace."""
    loop: Annotated[bool | None, BOOLEAN] = None
    """Start again at its end; Mahimahi, Pensieve, FCC and HSDPA do unless said, others do not."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Start again after so long (of the run's time)."""
    source: Annotated[str | None, TEXT] = None
    """Where the numbers come from."""


SECTIONS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "rate": (RateTrace, TracePoint),
    "delay": (DelayTrace, DelayPoint),
    "loss": (LossTrace, LossPoint),
}


def trace(what: str) -> AxisSchema:
    """What a scenario may write for a trace of rates, delays or losses."""
    section: Any = SECTIONS[what][0]

    def from_file(found: TraceFile, info: ValidationInfo) -> Any:
        return _from_file(found, what, info)

    other: Any = Annotated[TraceFile, AfterValidator(from_file), Tag("<file>")]
    written: Any = Annotated[section, Tag("<written>")]
    return AxisSchema(Annotated[other | written, Discriminator(_form), BeforeValidator(_expand)])


def _expand(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return {"points": value}
    if isinstance(value, Scalar):
        return {"use": value}
    if not isinstance(value, dict | AnyTrace):
        raise refuse("expected a mapping, a list of points or the name of a trace of the library")
    given = [key for key in ("points", "model", "use", "file") if isinstance(value, dict) and key in value]
    if len(given) > 1:
        raise refuse(f"a trace has either '{given[0]}' or '{given[1]}', not both")
    return value


def _form(value: Any) -> str:
    return "<file>" if isinstance(value, dict) and ("file" in value or "use" in value) else "<written>"


def _from_file(found: TraceFile, what: str, info: ValidationInfo) -> Any:
    name = found.file or found.use
    if name is None:
        raise refuse("has neither 'file' nor 'use'", "write file: NAME.csv, or the name of a trace of the library")
    path = beside(found.file, info) if found.file else library_path(name)
    try:
        read = _changed(read_trace(path, _reading(found, what)), found)
    except ScenarioError as error:
        raise refuse(str(error)) from error
    return written_out(read, found.source or _source(name, read, found), found.repeat_after)


def _reading(found: TraceFile, what: str) -> Reading:
    return Reading(
        what=what, format=found.format, unit=found.unit, time_unit=found.time_unit, step_s=found.step,
        source=found.source_name, target=found.target_name,
    )  # fmt: skip


def _changed(read: Trace, found: TraceFile) -> Trace:
    read = looped(read, found.loop) if found.loop is not None else read
    return sped_up(scaled(shifted(read, found.offset), found.scale), found.speed)


def _source(name: str, read: Trace, found: TraceFile) -> str:
    """The name, how it was read if that is not plain, and what was done with it."""
    about = [read.format] if read.format != "csv" else []
    about += [note for note in read.notes[1:] if "were set to" in note]
    changes = (("scale", found.scale, 1.0), ("speed", found.speed, 1.0), ("offset", found.offset, 0.0))
    about += [f"{key} {value:g}" for key, value, plain in changes if value != plain]
    return (f"{name} ({', '.join(about)})" if about else name)[:200]


def written_out(read: Trace, source: str, repeat_after: float | None = None) -> Any:
    """A trace as a section of the scenario; rates in whole bits per second."""
    section, point = SECTIONS[read.what]
    values = (round(value) if read.what == "rate" else round(value, 9) for value in read.values)
    points = tuple(
        _point(point, round(time, 6), read.what, float(value)) for time, value in zip(read.times_s, values, strict=True)
    )
    period = repeat_after if repeat_after is not None else read.period_s
    return section(points=points, repeat_after=None if period == float("inf") else period, source=source)
