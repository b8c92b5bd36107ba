"""Annotated graphs to what a scenario would say, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.scenario.one_way import joined, one_way
from topologies.graph import Graph, new_graph, pairs, routers

if TYPE_CHECKING:
    from testbed.scenario.network import Topology


def topology_of(graph: Graph[str]) -> Topology:
    """The graph written out."""
    from testbed.scenario.network import About, DataCenter, Lan, Link, Queue, Topology

    def link(a: str, b: str) -> Link:
        data = graph.edges[a, b]
        queue = Queue.parse(data["queue"]) if data["queue"] else None
        ends: dict[str, Any] = {"from": a, "to": b}
        return Link(**ends, rate=data["rate_bps"], delay=data["delay_s"], loss=data["loss"], queue=queue)

    central = graph.graph["central"]
    sites = tuple(
        DataCenter(name=name, central=name == central, workers=data["workers"])
        for name, data in graph.nodes(data=True)
        if data["workers"] is not None
    )
    links = (link(*ends) for a, b, _, back in pairs(graph) for ends in (((a, b), (b, a)) if back else ((a, b),)))
    places = {
        name: (data["latitude"], data["longitude"]) for name, data in graph.nodes(data=True) if "latitude" in data
    }
    mended = tuple(note[:200] for note in graph.graph.get("notes", ()))
    return Topology(
        data_centers=sites, routers=tuple(routers(graph)), links=joined(links), lan=Lan(), coordinates=places,
        routing=graph.graph["routing"], about=About(mended=mended) if mended else None,
    )  # fmt: skip


def graph_of(topology: Topology) -> Graph[str]:
    """The annotated graph of a topology that is written out, as it stands (``scale`` is not applied)."""
    central = next(site.name for site in topology.data_centers if site.central)
    graph = new_graph(central, topology.routing)
    for site in topology.data_centers:
        graph.add_node(site.name, workers=site.workers, lan=site.lan)
    graph.add_nodes_from(topology.routers, workers=None)
    for name, (latitude, longitude) in topology.coordinates.items():
        graph.nodes[name].update(latitude=latitude, longitude=longitude)
    for entry in topology.links:
        for link in one_way(entry):
            graph.add_edge(
                str(link.source), str(link.target), rate_bps=link.rate, delay_s=link.delay, loss=link.loss,
                queue=str(link.queue) if link.queue else None, traces=_traces(link),
            )  # fmt: skip
    return graph


def _traces(link: object) -> dict[str, object]:
    found = {what: getattr(link, f"{what}_trace") for what in ("rate", "delay", "loss")}
    return {what: trace for what, trace in found.items() if trace is not None}
