"""The section ``topology``, written out or made by a generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, ValidationInfo, model_validator

from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import Technique, axis
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import TEXT, integer, number, one_of, refuse
from testbed.scenario.reading.section import NULLABLE, Section
from testbed.scenario.reading.violations import Violation
from testbed.scenario.topology.links import Link, SiteName, joined, one_way
from testbed.scenario.topology.sites import DataCenter, Lan
from testbed.scenario.topology.structure import structure_violations
from testbed.scenario.topology.traces import written_out
from topologies.generators import GENERATORS
from topologies.paths import ROUTINGS
from topologies.traces import read_network_traces

_Latitude = Annotated[float, number(-90, 90)]
_Longitude = Annotated[float, number(-180, 180)]
_BESIDE_GENERATOR = ("data_centers", "links", "routers", "coordinates")


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
    repaired: tuple[Annotated[str, TEXT], ...] = ()
    """What was inconsistent in a graph file, and how it was repaired."""
    streams: Annotated[int | None, integer(1, 10_000)] = None
    """TCP connections that the rates were measured with, where they grow with that number."""


class Topology(Section):
    """Data centres and the network between them: written out, or made by a generator."""

    generator: Annotated[Technique | None, axis("generator", GENERATORS)] = None
    """A regular network instead of data_centers and links."""
    data_centers: tuple[DataCenter, ...] = ()
    """The sites, in rank order."""
    routers: tuple[SiteName, ...] = ()
    """Further vertices of the WAN, without nodes."""
    links: tuple[Link, ...] = ()
    """The WAN links."""
    lan: Lan = Lan()
    """The network inside every data centre."""
    routing: Annotated[str, one_of(*ROUTINGS)] = "delay"
    """delay: traffic takes the path of least delay. hops: of fewest links, for measured pairs that stand for paths."""
    scale: Annotated[float, number(1e-6, 1e6)] = 1.0
    """Divides all rates and queues in bytes. A model must be divided as well if its times are to stay."""
    speed: Annotated[float, number(1e-6, 1e6)] = 1.0
    """Divides the times of all traces: 180 makes three minutes a second."""
    traces: Annotated[str | None, TEXT] = None
    """A CSV file for many links: time_s,src,dst and rate_mbit_s, delay_ms, loss."""
    coordinates: dict[str, tuple[_Latitude, _Longitude]] = Field(default_factory=dict)
    """Latitude and longitude in degrees, for maps, e.g. {tokyo: [35.7, 139.7]}."""
    about: Annotated[About | None, NULLABLE] = None
    """Where it comes from."""

    @model_validator(mode="after")
    def _put_traces_on_links(self, info: ValidationInfo) -> Self:
        """Replace ``traces`` by the traces of that file, each on its link."""
        if self.traces is None:
            return self
        if self.generator is not None:
            cure = "write the links out: testbed topology NAME --yaml FILE"
            raise refuse("'traces' has no effect beside 'generator'", cure)
        links = _with_traces(self.links, self.traces, info)
        return self.model_copy(update={"traces": None, "links": links})

    def _violations(self) -> Iterator[Violation]:
        if self.generator is None:
            yield from structure_violations(self.data_centers, self.routers, self.links, self.coordinates)
            return
        for key in _BESIDE_GENERATOR:
            if getattr(self, key):
                yield Violation((key,), "has no effect beside 'generator'", "keep one of them")
        yield from self.generator.violations("generator")


def _with_traces(links: tuple[Link, ...], file: str, info: ValidationInfo) -> tuple[Link, ...]:
    """Return ``links`` with the traces of a CSV file. They repeat, for such files are short excerpts."""
    try:
        read = read_network_traces(beside(file, info))
    except ScenarioError as error:
        raise refuse(f"traces: {error}") from error
    by_ends = one_way(links)
    for (source, target, what), trace in read.traces.items():
        if (source, target) not in by_ends:
            problem = f"traces: {read.name}: no link from '{source}' to '{target}'"
            raise refuse(problem, "its columns src and dst must name the ends of links")
        section = written_out(trace, read.name, trace.length_s if len(trace.times_s) > 1 else None)
        by_ends[source, target] = by_ends[source, target].model_copy(update={f"{what}_trace": section})
    return joined(by_ends)
