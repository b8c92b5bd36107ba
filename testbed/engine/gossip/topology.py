"""The graph of a run's workers: by name, or as the data centres are connected."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.gossip.graphs import GRAPHS, Graph, given, is_connected


def graph_of(plan: Plan, kind: str) -> Graph:
    """Return the neighbours of each training worker, in rank order. Raise ``ScenarioError`` unless it is connected."""
    workers = plan.training_workers
    graph = _network(plan, workers) if kind == "network" else GRAPHS[kind](len(workers))
    if not is_connected(graph):
        raise ScenarioError("paradigm: the graph of the workers is not connected, so they could never agree")
    return graph


def _network(plan: Plan, workers: Sequence[NodePlan]) -> Graph:
    """Join all workers of a data centre, and the first workers of those with no third one on the path between."""
    by_site: dict[str, list[int]] = {}
    for rank, worker in enumerate(workers):
        by_site.setdefault(worker.data_center, []).append(rank)
    inside = [(a, b) for ranks in by_site.values() for a in ranks for b in ranks]
    across = [(by_site[a][0], by_site[b][0]) for a in by_site for b in by_site if a != b and _direct(plan, a, b)]
    return given(len(workers), (*inside, *across))


def _direct(plan: Plan, source: str, target: str) -> bool:
    links = {link.name: link for link in plan.network.links}
    sites = {site.name for site in plan.network.sites}
    path = plan.network.between(source, target)
    return not any(links[name].target in sites for name in path[:-1])
