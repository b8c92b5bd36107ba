"""Regular networks, and the table of all generators: frozen options that build annotated graphs.

Rates and delays of options hold for each direction of a link. See ``topologies.graph`` for the annotations and
``topologies.random_networks`` for the random kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import networkx as nx

from topologies.graph import Graph, join, new_graph
from topologies.random_networks import RATE, SITES, WORKERS, Geometric, UnevenStar, Waxman

_SITES = {**SITES, "max": 10_000}
_DELAY = {"help": "one-way delay of every WAN link", "unit": "s"}


@dataclass(frozen=True, slots=True)
class StarTopology:
    """Every data centre has one link to the central one, ``dc0``."""

    data_centers: int = field(default=3, metadata=_SITES)
    workers: int = field(default=2, metadata=WORKERS)
    rate: float = field(default=20e6, metadata=RATE)
    delay: float = field(default=0.04, metadata=_DELAY)

    def build(self) -> Graph[str]:
        """Return ``dc0`` in the middle and ``dc1`` … around it."""
        names = _names(self.data_centers)
        graph = _regular(self, [(names[0], name) for name in names[1:]])
        graph.nodes["dc0"]["xy"] = (0.0, 0.0)
        for number, name in enumerate(names[1:]):
            graph.nodes[name]["xy"] = _on_circle(number, len(names) - 1)
        return graph


@dataclass(frozen=True, slots=True)
class Ring(StarTopology):
    """Every data centre has a link to the next one, the last to the first; ``dc0`` is the central one."""

    data_centers: int = field(default=4, metadata={**_SITES, "min": 3, "max": 200})

    def build(self) -> Graph[str]:
        """Return ``dc0``, ``dc1``, …, linked in that order and back to ``dc0``."""
        names = _names(self.data_centers)
        return _circle(_regular(self, [*pairwise(names), (names[-1], names[0])]))


@dataclass(frozen=True, slots=True)
class Mesh(StarTopology):
    """Every pair of data centres has a link of its own; ``dc0`` is the central one."""

    data_centers: int = field(default=3, metadata={**_SITES, "max": 200})

    def build(self) -> Graph[str]:
        """Return all pairs of ``dc0``, ``dc1``, …, linked."""
        return _circle(_regular(self, list(combinations(_names(self.data_centers), 2))))


@dataclass(frozen=True, slots=True)
class Dumbbell:
    """Data centres on two sides share one link between two routers: the classic bottleneck."""

    data_centers: int = field(default=4, metadata={**_SITES, "max": 1000})
    workers: int = field(default=2, metadata=WORKERS)
    rate: float = field(default=20e6, metadata={"help": "rate of the shared link, each direction", "unit": "bit/s"})
    delay: float = field(default=0.04, metadata={"help": "one-way delay of the shared link", "unit": "s"})
    access_rate: float = field(default=100e6, metadata={"help": "rate of the links to the routers", "unit": "bit/s"})
    access_delay: float = field(default=0.001, metadata={"help": "one-way delay of these", "unit": "s"})

    def build(self) -> Graph[str]:
        """Return even data centres on the left and odd ones on the right."""
        graph = new_graph("dc0")
        names = _names(self.data_centers)
        for number, name in enumerate(names):
            height = (number // 2) - (math.ceil(len(names) / 2) - 1) / 2
            graph.add_node(name, workers=self.workers, xy=(-2.0 if number % 2 == 0 else 2.0, -height))
        graph.add_node("left", workers=None, xy=(-0.7, 0.0))
        graph.add_node("right", workers=None, xy=(0.7, 0.0))
        join(graph, "left", "right", self.rate, self.delay)
        for number, name in enumerate(names):
            join(graph, name, "left" if number % 2 == 0 else "right", self.access_rate, self.access_delay)
        return graph


@dataclass(frozen=True, slots=True)
class FatTree:
    """A fat tree of switches inside one data centre (Al-Fares et al., SIGCOMM 2008): racks in place of data centres.

    With switches of k ports: k pods, k²/2 racks (``rack0`` …) of ``workers`` machines, k²/2 aggregation and k²/4 core
    switches. Pairs are spread over paths of equal length.
    """

    ports: int = field(default=4, metadata={"help": "ports of a switch; even", "min": 2, "max": 16})
    workers: int = field(default=2, metadata={**WORKERS, "help": "workers in each rack"})
    rate: float = field(default=1e9, metadata={"help": "rate of every link between switches", "unit": "bit/s"})
    delay: float = field(default=0.00001, metadata={"help": "one-way delay of every link", "unit": "s"})

    @property
    def data_centers(self) -> int:
        return self.ports**2 // 2

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure of every violation."""
        if self.ports % 2:
            yield "ports", f"{self.ports} is odd", f"half of a switch's ports go up; write {self.ports + 1}"

    def build(self) -> Graph[str]:
        """Return ``rackN`` below ``aggN`` below ``coreN``."""
        half, width = self.ports // 2, self.data_centers
        graph = new_graph("rack0")
        for number in range(width):
            graph.add_node(f"rack{number}", workers=self.workers, xy=(float(number), 0.0))
        for number in range(width):
            graph.add_node(f"agg{number}", workers=None, xy=(float(number), 1.0))
        for number in range(half**2):
            graph.add_node(f"core{number}", workers=None, xy=((number + 0.5) * width / half**2 - 0.5, 2.0))
        for pod in range(self.ports):
            for i in range(half):
                for j in range(half):
                    join(graph, f"rack{pod * half + i}", f"agg{pod * half + j}", self.rate, self.delay)
                    join(graph, f"agg{pod * half + i}", f"core{i * half + j}", self.rate, self.delay)
        return graph


def _names(count: int) -> list[str]:
    return [f"dc{number}" for number in range(count)]


def _regular(options: StarTopology, edges: list[tuple[str, str]]) -> Graph[str]:
    graph = new_graph("dc0")
    graph.add_nodes_from(_names(options.data_centers), workers=options.workers)
    for a, b in edges:
        join(graph, a, b, options.rate, options.delay)
    return graph


def _circle(graph: Graph[str]) -> Graph[str]:
    places = {name: _on_circle(number, len(graph)) for number, name in enumerate(graph)}
    nx.set_node_attributes(graph, places, "xy")
    return graph


def _on_circle(number: int, count: int) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * number / count
    return math.cos(angle), math.sin(angle)


GENERATORS: dict[str, type[Any]] = {
    "star": StarTopology,
    "uneven_star": UnevenStar,
    "ring": Ring,
    "mesh": Mesh,
    "dumbbell": Dumbbell,
    "fat_tree": FatTree,
    "geometric": Geometric,
    "waxman": Waxman,
}
