"""The network part of a scenario: data centres, routers, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from testbed import units
from testbed.errors import ScenarioError
from testbed.scenario.axes import Section, Technique, axis
from testbed.scenario.quantities import (
    BOOLEAN,
    DELAY,
    DURATION,
    INSTANT,
    LOSS,
    NAME,
    RATE,
    TEXT,
    Leaf,
    integer,
    is_null,
    number,
    one_of,
    refuse,
    text_of,
)
from testbed.scenario.rules import check_link, check_topology, check_trace
from topologies.generators import GENERATORS
from topologies.traces import read_trace


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's length as written: ``bytes``, ``s`` (at the link's rate) or ``bdp`` (of the link's own round trip)."""

    unit: str
    amount: float

    @classmethod
    def parse(cls, text: str) -> Queue:
        """From ``256 KiB``, ``50 ms`` or ``1.5 bdp``. Raises ``UnitError``."""
        if text.endswith("bdp"):
            return cls("bdp", float(units.parse_number(text.removesuffix("bdp").rstrip())))
        try:
            return cls("bytes", units.parse_size(text))
        except units.UnitError as no_size:
            try:
                return cls("s", units.parse_duration(text))
            except units.UnitError:
                raise units.UnitError(no_size.problem, "write '256 KiB', '50 ms' or '1.5 bdp'") from None

    def __str__(self) -> str:
        if self.unit == "bytes":
            return units.format_size(int(self.amount))
        return units.format_duration(self.amount) if self.unit == "s" else f"{self.amount:g} bdp"


def _read_queue(value: Any) -> Queue:
    if isinstance(value, Queue):
        return value
    try:
        queue = Queue.parse(text_of(value))
    except units.UnitError as error:
        raise refuse(error.problem, error.hint) from error
    if queue.amount <= 0:
        raise refuse(f"{text_of(value)} is not above 0")
    return queue


QUEUE = Leaf(_read_queue, {"type": "string", "examples": ["256 KiB", "50 ms", "1.5 bdp"]}, str)
NULLABLE = BeforeValidator(lambda value: None if is_null(value) else value)
_NameOf = Annotated[str, NAME]


class Lan(Section):
    """The network inside a data centre."""

    rate: Annotated[float, RATE] = 1e9
    """Rate of every node's port, each way."""
    delay: Annotated[float, DELAY] = 0.0001
    """One-way delay between any two nodes."""


class Device(Section):
    """What a worker computes on, and how long one training step takes there."""

    kind: Annotated[str, one_of("cpu", "cuda")] = "cpu"
    """Where the real mathematics runs."""
    pace: Annotated[str, one_of("paced", "measured")] = "paced"
    """paced: a step really computes, then waits until its step time has passed. measured: it takes what it takes."""
    step_time: Annotated[float, DURATION] = 0.05
    """Time of one training step at speed 1."""
    speed: Annotated[float, number(0, 1000, above=True)] = 1.0
    """How many times faster than step_time says; 0.5 makes a straggler."""


class DeviceChanges(Section):
    """What differs from the global ``device`` in one data centre or at one worker."""

    kind: Annotated[str | None, one_of("cpu", "cuda")] = None
    """As in device."""
    pace: Annotated[str | None, one_of("paced", "measured")] = None
    """As in device."""
    step_time: Annotated[float | None, DURATION] = None
    """As in device."""
    speed: Annotated[float | None, number(0, 1000, above=True)] = None
    """As in device."""


class DataCenter(Section):
    """One site: a LAN with workers and a local server; the central one also holds global servers and the scheduler."""

    name: Annotated[str, NAME]
    """Name of the data centre; its nodes are name/worker0, name/server0, …."""
    central: Annotated[bool, BOOLEAN] = False
    """Whether the global servers live here. Exactly one data centre is central."""
    workers: Annotated[int, integer(0, 1000)] = 2
    """Workers that train here. Only the central data centre may have 0."""
    global_servers: Annotated[int | None, integer(1, 64)] = None
    """Global servers in the central data centre (1 unless said); keys are sharded over them."""
    lan: Annotated[Lan | None, NULLABLE] = None
    """A LAN that differs from topology.lan."""
    device: Annotated[DeviceChanges | None, NULLABLE] = None
    """What differs for all workers here."""
    worker_devices: dict[str, DeviceChanges] = Field(default_factory=dict)
    """What differs for single workers, e.g. {worker1: {speed: 0.5}}."""


class TracePoint(Section):
    """From ``at`` on, the link has ``rate``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    rate: Annotated[float, RATE]
    """Rate from then on."""


class RateTrace(Section):
    """A rate that changes while training runs: points, or a CSV file beside the scenario."""

    points: tuple[TracePoint, ...] = ()
    """Times and rates; the first time is 0 s."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Start again after so long; otherwise the last rate stays."""
    source: Annotated[str | None, TEXT] = None
    """Where the numbers come from."""

    _rules = model_validator(mode="after")(check_trace)


def _read_trace(value: Any, info: ValidationInfo) -> Any:
    if is_null(value):
        return None
    if isinstance(value, tuple | list):
        return {"points": value}
    if not isinstance(value, dict) or "file" not in value:
        return value
    if "points" in value:
        raise refuse("a trace has either 'points' or 'file', not both")
    rest = {key: entry for key, entry in value.items() if key != "file"}
    file = text_of(value["file"])
    return {"source": file, **rest, "points": _points_of(file, (info.context or {}).get("folder"))}


def _points_of(file: str, folder: Path | None) -> tuple[dict[str, float], ...]:
    if folder is None:
        raise refuse(f"file '{file}' is relative to a scenario file, and this scenario is none")
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise refuse(f"file '{file}' lies outside the scenario's folder")
    try:
        trace = read_trace(path)
    except ScenarioError as error:
        raise refuse(str(error)) from error
    return tuple({"at": at, "rate": rate} for at, rate in zip(trace.times_s, trace.values, strict=True))


class Reverse(Section):
    """What differs from the second end of ``between`` to the first. A ``rate`` here also replaces the trace there."""

    rate: Annotated[float | None, RATE] = None
    """As in the link."""
    delay: Annotated[float | None, DELAY] = None
    """As in the link."""
    queue: Annotated[Queue | None, QUEUE] = None
    """As in the link."""
    loss: Annotated[float | None, LOSS] = None
    """As in the link."""
    jitter: Annotated[float | None, DELAY] = None
    """As in the link."""
    rate_trace: Annotated[RateTrace | None, BeforeValidator(_read_trace)] = None
    """As in the link."""


class Link(Section):
    """A WAN link, in both directions (``between``) or in one (``from`` and ``to``)."""

    between: Annotated[tuple[_NameOf, _NameOf] | None, NULLABLE] = None
    """The two ends; what follows counts for both directions."""
    source: Annotated[str | None, NAME] = Field(default=None, alias="from")
    """Where a one-way link begins."""
    target: Annotated[str | None, NAME] = Field(default=None, alias="to")
    """Where a one-way link ends."""
    rate: Annotated[float, RATE]
    """Bits per second, Ethernet frames counted."""
    delay: Annotated[float, DELAY]
    """One-way delay; the round trip is twice as long."""
    queue: Annotated[Queue | None, QUEUE] = None
    """Length of the queue in front: bytes, time at the link's rate, or multiples of rate x 2 x delay ('1.5 bdp')."""
    loss: Annotated[float, LOSS] = 0.0
    """Share of packets lost at random."""
    jitter: Annotated[float, DELAY] = 0.0
    """Standard deviation of the delay."""
    rate_trace: Annotated[RateTrace | None, BeforeValidator(_read_trace)] = None
    """A rate that changes while training runs; it replaces 'rate' meanwhile."""
    reverse: Annotated[Reverse | None, NULLABLE] = None
    """What differs on the way back."""

    _rules = model_validator(mode="after")(check_link)


class Topology(Section):
    """Data centres and the network between them: written out, or made by a generator."""

    generator: Annotated[Technique | None, axis("generator", GENERATORS)] = None
    """A regular network instead of data_centers and links."""
    data_centers: tuple[DataCenter, ...] = ()
    """The sites, in rank order."""
    routers: tuple[_NameOf, ...] = ()
    """Further vertices of the WAN, without nodes."""
    links: tuple[Link, ...] = ()
    """The WAN links."""
    lan: Lan = Lan()
    """The network inside every data centre."""

    _rules = model_validator(mode="after")(check_topology)
