"""Traces that a scenario names: a file beside it, or one of the library.

Files are read with the scenario; points remain, so that a run directory needs no other file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationInfo

from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import kind_of
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import BOOLEAN, DURATION, INSTANT, TEXT, number, one_of, refuse
from testbed.scenario.reading.section import ReadAs, Section
from testbed.scenario.topology.traces import SECTIONS, LinkTrace, written_out
from topologies.library import LIBRARY, library_path
from topologies.traces import FORMATS, Reading, Trace, read_trace
from topologies.traces.change import looped, scaled, shifted, sped_up

_FACTOR = number(1e-6, 1e6)


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What was read from a file: its format, and whether that was given or detected; samples; duration; unit."""

    name: str
    what: str
    format: str
    how: str
    samples: int
    length_s: float
    unit: str


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
        return _from_file(named, what, info)

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
    given = [key for key in ("points", "model", "use", "file") if isinstance(value, dict) and key in value]
    if len(given) > 1:
        raise refuse(f"a trace has either '{given[0]}' or '{given[1]}', not both")
    return value


def _form(value: Any) -> str:
    return "<file>" if isinstance(value, dict) and ("file" in value or "use" in value) else "<written>"


def _from_file(named: TraceFile, what: str, info: ValidationInfo) -> Any:
    name = named.file or named.use
    if name is None:
        raise refuse("has neither 'file' nor 'use'", "write file: NAME.csv, or the name of a trace of the library")
    path = beside(named.file, info) if named.file else library_path(name)
    reading = Reading(
        what=what, format=named.format, unit=named.unit, time_unit=named.time_unit, step_s=named.step,
        source=named.source_name, target=named.target_name,
    )  # fmt: skip
    try:
        read = _changed(read_trace(path, reading), named)
    except ScenarioError as error:
        raise refuse(str(error)) from error
    if info.context is not None:
        how = "given" if named.format else "detected"
        found = TraceSummary(name, what, read.format, how, len(read.values), read.length_s, read.unit)
        info.context.setdefault("traces", []).append(found)
    return written_out(read, named.source or _source(name, read, named), named.repeat_after)


def _changed(read: Trace, named: TraceFile) -> Trace:
    read = looped(read, named.loop) if named.loop is not None else read
    return sped_up(scaled(shifted(read, named.offset), named.scale), named.speed)


def _source(name: str, read: Trace, named: TraceFile) -> str:
    """Return the name, with the format unless it is the testbed's own, and with what was changed."""
    about = [read.format] if read.format != "csv" else []
    about += [note for note in read.notes[1:] if "were set to" in note]
    changes = (("scale", named.scale, 1.0), ("speed", named.speed, 1.0), ("offset", named.offset, 0.0))
    about += [f"{key} {value:g}" for key, value, default in changes if value != default]
    return (f"{name} ({', '.join(about)})" if about else name)[:200]
