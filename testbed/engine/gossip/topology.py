"""The graph of a run's workers: by name, or as the data centres are connected."""

from __future__ import annotations

from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.plan.routes import routes_of
from testbed.policy.gossip.graphs import GRAPHS, Graph, given, is_connected


def graph_of(plan: Plan, kind: str) -> Graph:
    """Neighbours of each training worker, in rank order. ``ScenarioError`` when not all can hear of all."""
    workers = [worker for worker in plan.with_role("worker") if worker.trains]
    graph = _network(plan, workers) if kind == "network" else GRAPHS[kind](len(workers))
    if not is_connected(graph):
        raise ScenarioError("paradigm: the graph of the workers is not connected, so they could never agree")
    return graph


def _network(plan: Plan, workers: list[NodePlan]) -> Graph:
    """All workers of a data centre, and the first ones of data centres with no other one on the path between."""
    by_site: dict[str, list[int]] = {}
    for rank, worker in enumerate(workers):
        by_site.setdefault(worker.data_center, []).append(rank)
    inside = [(a, b) for ranks in by_site.values() for a in ranks for b in ranks]
    across = [(by_site[a][0], by_site[b][0]) for a in by_site for b in by_site if a != b and _direct(plan, a, b)]
    return given(len(workers), (*inside, *across))


def _direct(plan: Plan, source: str, target: str) -> bool:
    links = {link.name: link for link in plan.network.links}
    sites = {site.name for site in plan.network.sites}
    path = routes_of(plan.network).between(source, target)
    return not any(links[name].target in sites for name in path[:-1])
