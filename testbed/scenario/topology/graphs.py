"""Annotated graphs to topologies, and back."""

from __future__ import annotations

from typing import Any

from testbed.scenario.topology.links import Link, Queue, joined, one_way
from testbed.scenario.topology.sites import DataCenter, Lan
from testbed.scenario.topology.topology import About, Topology
from topologies.graph import Graph, new_graph, pairs, routers


def generated(topology: Topology) -> Topology:
    """Return the topology written out: what its generator makes, or itself."""
    if topology.generator is None:
        return topology
    made = topology_of(topology.generator.options.build())
    kept = ("lan", "routing", "scale", "speed")
    return made.model_copy(update={name: getattr(topology, name) for name in kept})


def topology_of(graph: Graph[str]) -> Topology:
    """Return the graph written out."""
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
    return Topology(
        data_centers=sites, routers=tuple(routers(graph)), links=joined({pair: _link(graph, *pair) for pair in ends}),
        lan=Lan(), coordinates=places, routing=graph.graph["routing"],
        about=About(repaired=repaired) if repaired else None,
    )  # fmt: skip


def _link(graph: Graph[str], source: str, target: str) -> Link:
    data = graph.edges[source, target]
    queue = Queue.parse(data["queue"]) if data["queue"] else None
    ends: dict[str, Any] = {"from": source, "to": target}
    return Link(**ends, rate=data["rate_bps"], delay=data["delay_s"], loss=data["loss"], queue=queue)


def graph_of(topology: Topology) -> Graph[str]:
    """Return the annotated graph of a written-out topology, as it stands (``scale`` is not applied)."""
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
            source, target, rate_bps=link.rate, delay_s=link.delay, loss=link.loss,
            queue=str(link.queue) if link.queue else None,
            traces={what: trace for what, trace in traces.items() if trace is not None},
        )  # fmt: skip
    return graph
