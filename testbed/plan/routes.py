"""The paths that a Plan of very many sites leaves out: the shortest ones, by its own rule, as they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError
from testbed.ids import link_name
from testbed.plan.recent import Recent

if TYPE_CHECKING:
    from testbed.plan.model import NetworkPlan
    from topologies.paths import Paths


def routes_of(network: NetworkPlan) -> Routes:
    """The routes of this network; those that were asked about last are remembered, as every node asks."""
    return _routes(network)


class Routes:
    """The links of the path between any two sites."""

    def __init__(self, network: NetworkPlan) -> None:
        self.network = network
        self._known: Mapping[str, tuple[str, ...]] = network.routes
        self._from: dict[str, Paths] = {}

    def between(self, source: str, target: str) -> tuple[str, ...]:
        """Names of the links from one site to another. ``ScenarioError`` if there is no path."""
        name = link_name(source, target)
        known = self._known.get(name)
        if known is not None:
            return known
        paths = self._from.get(source) or self._find(source)
        if target not in paths:
            raise ScenarioError(f"the Plan has no route {name}; its nodes cannot talk to each other")
        return tuple(link_name(a, b) for a, b in pairwise(paths.path(target)))

    def _find(self, source: str) -> Paths:
        from topologies.paths import Paths

        edges = [(link.source, link.target, link.delay_s) for link in self.network.links]
        paths = self._from[source] = Paths(edges, source, self.network.routing, backwards=False)
        return paths


_routes = Recent(Routes)
