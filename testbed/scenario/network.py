"""The network part of a scenario: data centres, routers, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from testbed import units
from testbed.scenario.axes import Section, Technique, axis
from testbed.scenario.devices import DeviceChanges
from testbed.scenario.impairments import Impairments
from testbed.scenario.network_traces import with_network_traces
from testbed.scenario.quantities import (
    BOOLEAN,
    DELAY,
    LOSS,
    NAME,
    RATE,
    TEXT,
    FieldType,
    integer,
    is_null,
    number,
    one_of,
    refuse,
    text_of,
)
from testbed.scenario.rules import check_link, check_topology
from testbed.scenario.traces import DelayTrace, LossTrace, RateTrace, trace
from topologies.generators import GENERATORS
from topologies.paths import ROUTINGS


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


QUEUE = FieldType(_read_queue, {"type": "string", "examples": ["256 KiB", "50 ms", "1.5 bdp"]}, str)
NULLABLE = BeforeValidator(lambda value: None if is_null(value) else value)
_NameOf = Annotated[str, NAME]


class Lan(Section):
    """The network inside a data centre."""

    rate: Annotated[float, RATE] = 1e9
    """Rate of every node's port, each way."""
    delay: Annotated[float, DELAY] = 0.0001
    """One-way delay between any two nodes."""


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
    rate_trace: Annotated[RateTrace | None, trace("rate")] = None
    """As in the link."""
    delay_trace: Annotated[DelayTrace | None, trace("delay")] = None
    """As in the link."""
    loss_trace: Annotated[LossTrace | None, trace("loss")] = None
    """As in the link."""


class Link(Impairments):
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
    rate_trace: Annotated[RateTrace | None, trace("rate")] = None
    """A rate that changes while training runs; it replaces 'rate' meanwhile."""
    delay_trace: Annotated[DelayTrace | None, trace("delay")] = None
    """A one-way delay that changes; it replaces 'delay' meanwhile."""
    loss_trace: Annotated[LossTrace | None, trace("loss")] = None
    """A loss that changes; it replaces 'loss' meanwhile."""
    reverse: Annotated[Reverse | None, NULLABLE] = None
    """What differs on the way back."""

    _rules = model_validator(mode="after")(check_link)


class About(Section):
    """Where a topology comes from."""

    title: Annotated[str | None, TEXT] = None
    """What it is, in one line."""
    source: Annotated[str | None, TEXT] = None
    """Who measured or made it, and when."""
    licence: Annotated[str | None, TEXT] = None
    """Licence of the data."""
    notes: tuple[Annotated[str, TEXT], ...] = ()
    """What was assumed or left out."""
    mended: tuple[Annotated[str, TEXT], ...] = ()
    """What was odd in a graph file, and what was made of it."""
    streams: Annotated[int | None, integer(1, 10_000)] = None
    """TCP connections that the rates were measured with, where they grow with that number."""


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
    routing: Annotated[str, one_of(*ROUTINGS)] = "delay"
    """delay: traffic takes the path of least delay. hops: of fewest links, for measured pairs that stand for paths."""
    scale: Annotated[float, number(0, 1e6, above=True)] = 1.0
    """Divides all rates and queues in bytes. A model must be divided as well if its times are to stay."""
    speed: Annotated[float, number(0, 1e6, above=True)] = 1.0
    """Divides the times of all traces: 180 makes three minutes a second."""
    traces: Annotated[str | None, TEXT] = None
    """A CSV file for many links: time_s,src,dst and rate_mbit_s, delay_ms, loss."""
    coordinates: dict[str, tuple[Annotated[float, number(-90, 90)], Annotated[float, number(-180, 180)]]] = Field(
        default_factory=dict
    )
    """Latitude and longitude in degrees, for pictures, e.g. {tokyo: [35.7, 139.7]}."""
    about: Annotated[About | None, NULLABLE] = None
    """Where it comes from."""

    _traces = model_validator(mode="after")(with_network_traces)
    _rules = model_validator(mode="after")(check_topology)
