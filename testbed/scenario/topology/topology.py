"""The section ``topology``, written out or made by a generator: data centres, links, rules over them, and its graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import networkx as nx
from pydantic import ValidationInfo

from testbed.declaration import Problem, item, option, required
from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import Technique
from testbed.scenario.reading.declared import changes_of
from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import refuse
from testbed.scenario.reading.violations import Violation, checked
from testbed.scenario.topology.links import Link, Queue, SiteName, joined, one_way
from testbed.scenario.topology.traces import TraceSummary, written_out
from testbed.settings.job import Device, DeviceSection
from testbed.suggest import suggestion
from topologies.graph import ROUTINGS, Graph, new_graph, pairs, routers
from topologies.traces import NetworkTraces, read_network_traces
from topologies.traces.model import WHAT

MAX_DATA_CENTERS = 10_000
_Latitude = Annotated[float, item(min=-90, max=90)]
_Longitude = Annotated[float, item(min=-180, max=180)]
_BESIDE_GENERATOR = ("data_centers", "links", "routers", "coordinates")
_CHANGED = ("server_device", *(name for name in Device.__dataclass_fields__ if name != "layers"))
DeviceChanges = changes_of(
    DeviceSection,
    "DeviceChanges",
    "What differs from the global ``device`` in one data centre or at one worker.",
    *_CHANGED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lan:
    """The network inside a data centre."""

    rate_bps: float = option(1e9, unit="bit/s")
    """Rate of every node's port, each way."""
    delay_s: float = option(0.0001, unit="s", max=10.0)
    """One-way delay between any two nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSite:
    """A data centre to which changes apply."""

    name: str = required(form="name")
    """Name of the data centre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCenter:
    """One site: a LAN with workers and a local server; the central one also holds global servers and the scheduler."""

    name: str = required(form="name")
    """Name of the data centre; its nodes are name/worker0, name/server0, …."""
    central: bool = False
    """Whether the global servers are in this data centre. Exactly one data centre is central."""
    workers: int = option(2, max=1000)
    """Workers in this data centre. Only the central one may have 0."""
    global_servers: int | None = option(None, min=1, max=64)
    """Global servers in the central data centre (default 1); keys are sharded over them."""
    lan: Lan | None = None
    """A LAN that differs from topology.lan."""
    device: Any | None = option(None, section=DeviceChanges)
    """How the devices of all workers in this data centre differ from the global 'device'."""
    worker_devices: dict[str, Annotated[Any, item(section=DeviceChanges)]] = option(dict)
    """How the devices of individual workers differ, e.g. {worker1: {speed: 0.5}}."""


SITE_CHANGE = changes_of(
    DataCenter,
    "SiteChange",
    "What differs in one data centre.",
    "workers",
    "global_servers",
    "lan",
    "device",
    "worker_devices",
    bases=(NamedSite,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Where a topology comes from."""

    title: str | None = None
    """What the topology is, in one line."""
    source: str | None = None
    """Who measured or made it, and when."""
    licence: str | None = None
    """Licence of the data."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out."""
    repaired: tuple[str, ...] = ()
    """What was inconsistent in a graph file, and how it was repaired."""
    streams: int | None = option(None, min=1, max=10_000)
    """Number of TCP connections with which the rates were measured, if the rates grow with that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Data centres and the network between them: written out, or made by a generator."""

    generator: Technique | None = option(None, axis="generator")
    """A regular network instead of data_centers and links."""
    data_centers: tuple[DataCenter, ...] = ()
    """The sites, in rank order."""
    routers: tuple[SiteName, ...] = ()
    """Further vertices of the WAN, without nodes."""
    links: tuple[Link, ...] = ()
    """The WAN links."""
    lan: Lan = option(Lan())
    """The network inside every data centre."""
    routing: str = option("delay", choices=tuple(ROUTINGS))
    """delay: traffic takes the path of least delay. hops: the path of fewest links, for topologies in which each link
    is a measured path."""
    scale: float = option(1.0, min=1e-6, max=1e6)
    """Divides all rates and queues in bytes. Divide the model's size as well to keep the times of transfers."""
    speed: float = option(1.0, min=1e-6, max=1e6)
    """Divides the times of all traces: 180 turns three minutes into one second."""
    traces: str | None = None
    """A CSV file for many links: time_s,src,dst and rate_mbit_s, delay_ms, loss."""
    coordinates: dict[str, tuple[_Latitude, _Longitude]] = option(dict)
    """Latitude and longitude in degrees, for maps, e.g. {tokyo: [35.7, 139.7]}."""
    about: About | None = None
    """Where the topology comes from."""

    def problems(self) -> Iterator[Problem]:
        if self.generator is None:
            yield from _structure(self)
            return
        for key in _BESIDE_GENERATOR:
            if getattr(self, key):
                yield key, "has no effect beside 'generator'", "keep one of them"
        yield from self.generator.violations("generator")


def with_traces(topology: Topology, info: ValidationInfo) -> Topology:
    """Return the topology with each trace of the file ``traces`` on its link."""
    if topology.traces is None:
        return topology
    if topology.generator is not None:
        cure = "write the links out: testbed topology NAME --yaml FILE"
        raise refuse("'traces' has no effect beside 'generator'", cure)
    try:
        read = read_network_traces(beside(topology.traces, info))
    except ScenarioError as error:
        raise refuse(f"traces: {error}") from error
    return replace(topology, traces=None, links=follow(topology.links, read, info))


def follow(links: tuple[Link, ...], read: NetworkTraces, info: ValidationInfo) -> tuple[Link, ...]:
    """Return ``links`` with the traces of a file. Traces repeat, as such files are short excerpts."""
    if info.context is not None:
        info.context.setdefault("traces", []).extend(_summaries(read))
    by_ends = one_way(links)
    for (source, target, what), trace in read.traces.items():
        if (source, target) not in by_ends:
            problem = f"traces: {read.name}: no link from '{source}' to '{target}'"
            raise refuse(problem, "its columns src and dst must name the ends of links")
        series = written_out(trace, read.name, trace.length_s if len(trace.times_s) > 1 else None)
        changes: dict[str, Any] = {f"{what}_trace": series}
        by_ends[source, target] = replace(by_ends[source, target], **changes)
    return joined(by_ends)


def _summaries(read: NetworkTraces) -> Iterator[TraceSummary]:
    """Yield one summary for all traces of each quantity."""
    for what in WHAT:
        traces = [trace for (_, _, of), trace in read.traces.items() if of == what]
        if traces:
            notes = tuple(dict.fromkeys(note for trace in traces for note in trace.notes))
            length_s = max(trace.length_s for trace in traces)
            samples = sum(len(trace.values) for trace in traces)
            about = f"{what} of {len(traces)} directions"
            yield TraceSummary(read.name, about, "csv", "detected", samples, length_s, "", read.notes + notes[:2])


def _structure(topology: Topology) -> list[Problem]:
    """Return everything that is wrong. Paths between data centres are checked only if nothing else is wrong."""
    sites = topology.data_centers
    routers = topology.routers
    links = topology.links
    vertices = dict.fromkeys((*(site.name for site in sites), *routers))
    found = [*_names(sites, routers), *_central(sites), *_data_centers(sites), *_links(links, vertices)]
    for name in topology.coordinates:
        if name not in vertices:
            problem = f"no data centre or router named '{name}'"
            found.append(Violation(("coordinates", name), problem, suggestion(name, vertices)))
    return found or list(_unreachable(sites, links))


def _names(sites: Sequence[DataCenter], routers: Sequence[str]) -> Iterator[Problem]:
    if not 1 <= len(sites) <= MAX_DATA_CENTERS:
        yield Violation(("data_centers",), f"has {len(sites)} data centres, allowed 1 to {MAX_DATA_CENTERS}")
    named: list[tuple[tuple[str | int, ...], str]] = [
        *((("data_centers", index, "name"), site.name) for index, site in enumerate(sites)),
        *((("routers", index), name) for index, name in enumerate(routers)),
    ]
    first: dict[str, str] = {}
    for at, name in named:
        place = first.setdefault(name, f"{at[0]}[{at[1]}]")
        if place != f"{at[0]}[{at[1]}]":
            yield Violation(at, f"'{name}' is used twice (also {place})")


def _central(sites: Sequence[DataCenter]) -> Iterator[Problem]:
    central = [index for index, site in enumerate(sites) if site.central]
    if not central and sites:
        yield Violation(("data_centers",), "no data centre is central", "write 'central: true' at one of them")
    for index in central[1:]:
        yield Violation(("data_centers", index, "central"), f"data_centers[{central[0]}] is central already")


def _data_centers(sites: Sequence[DataCenter]) -> Iterator[Problem]:
    for index, site in enumerate(sites):
        at = ("data_centers", index)
        if site.workers == 0 and not site.central:
            yield Violation((*at, "workers"), "0 is outside [1, 1000]", "only the central data centre may have none")
        if site.global_servers is not None and not site.central:
            cure = "global servers live in the central data centre"
            yield Violation((*at, "global_servers"), "has no effect here", cure)
        workers = [f"worker{number}" for number in range(site.workers if site.worker_devices else 0)]
        for name in site.worker_devices:
            if name not in workers:
                known = suggestion(name, workers) or f"it has {site.workers} workers"
                yield Violation((*at, "worker_devices", name), f"no worker named '{name}' in '{site.name}'", known)
    if sites and not any(site.workers for site in sites):
        yield Violation(("data_centers",), "there is no worker", "write 'workers: 2' at one of them")


def _links(links: Sequence[Link], vertices: dict[str, None]) -> Iterator[Problem]:
    seen: dict[tuple[str, str], int] = {}
    for index, link in enumerate(links):
        keys = [("between", 0), ("between", 1)] if link.between is not None else [("from",), ("to",)]
        for key, end in zip(keys, link.directions[0], strict=True):
            if end not in vertices:
                problem = f"no data centre or router named '{end}'"
                yield Violation(("links", index, *key), problem, suggestion(end, vertices))
        for pair in link.directions:
            first = seen.setdefault(pair, index)
            if first != index:
                yield Violation(("links", index), f"'{pair[0]}' to '{pair[1]}' is linked twice (also links[{first}])")


def _unreachable(sites: Sequence[DataCenter], links: Sequence[Link]) -> Iterator[Problem]:
    """Yield data centres that the central one cannot reach, or that cannot reach it."""
    central = next(site.name for site in sites if site.central)
    graph = nx.DiGraph(pair for link in links for pair in link.directions)
    graph.add_node(central)
    reached = nx.descendants(graph, central)
    reaching = nx.ancestors(graph, central)
    for index, site in enumerate(sites):
        at = ("data_centers", index, "name")
        if site.name != central and site.name not in reached:
            yield Violation(at, f"no path from '{central}' to '{site.name}'", "add a link")
        elif site.name != central and site.name not in reaching:
            yield Violation(at, f"no path from '{site.name}' to '{central}'", "add a link")


def generated(topology: Topology) -> Topology:
    """Return the topology that the generator makes, or ``topology`` itself if it has no generator."""
    if topology.generator is None:
        return topology
    made = topology_of(topology.generator.options.build())
    kept = ("lan", "routing", "scale", "speed")
    return replace(made, **{name: getattr(topology, name) for name in kept})


def topology_of(graph: Graph[str]) -> Topology:
    central = graph.graph["central"]
    sites = tuple(
        DataCenter(name=name, central=name == central, workers=data["workers"])
        for name, data in graph.nodes(data=True)
        if data["workers"] is not None
    )
    ends = [pair for a, b, _, back in pairs(graph) for pair in (((a, b), (b, a)) if back else ((a, b),))]
    places = {
        name: (data["latitude"], data["longitude"]) for name, data in graph.nodes(data=True) if "latitude" in data
    }
    repaired = tuple(note[:200] for note in graph.graph.get("notes", ()))
    topology = Topology(
        data_centers=sites,
        routers=tuple(routers(graph)),
        links=joined({pair: _link(graph, *pair) for pair in ends}),
        lan=Lan(),
        coordinates=places,
        routing=graph.graph["routing"],
        about=About(repaired=repaired) if repaired else None,
    )
    return checked(topology)


def _link(graph: Graph[str], source: str, target: str) -> Link:
    data = graph.edges[source, target]
    queue = Queue.parse(data["queue"]) if data["queue"] else None
    return Link(
        source=source, target=target, rate_bps=data["rate_bps"], delay_s=data["delay_s"], loss=data["loss"], queue=queue
    )


def graph_of(topology: Topology) -> Graph[str]:
    """Return the annotated graph of a written-out topology. Rates are not divided by ``scale``."""
    central = next(site.name for site in topology.data_centers if site.central)
    graph = new_graph(central, topology.routing)
    for site in topology.data_centers:
        graph.add_node(site.name, workers=site.workers, lan=site.lan)
    graph.add_nodes_from(topology.routers, workers=None)
    for name, (latitude, longitude) in topology.coordinates.items():
        graph.nodes[name].update(latitude=latitude, longitude=longitude)
    for (source, target), link in one_way(topology.links).items():
        traces = {what: getattr(link, f"{what}_trace") for what in ("rate", "delay", "loss")}
        graph.add_edge(
            source,
            target,
            rate_bps=link.rate_bps,
            delay_s=link.delay_s,
            loss=link.loss,
            queue=str(link.queue) if link.queue else None,
            traces={what: trace for what, trace in traces.items() if trace is not None},
        )
    return graph
