"""Regular and random networks: pure functions from small frozen options to annotated graphs.

The rate and the delay of an option count for each way of a link. Random ones take their own ``seed``, not the
scenario's: another seed of the run is the same experiment on the same network. See ``topologies.graph`` for the
annotations, ``topologies.random_networks`` for the random kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import networkx as nx

from topologies.graph import Graph, join, new_graph
from topologies.random_networks import Geometric, UnevenStar, Waxman, geometric, uneven_star, waxman

_SITES = {"help": "data centres, the central one included", "min": 2, "max": 10_000}
_WORKERS = {"help": "workers in each data centre", "min": 1, "max": 1000}
_RATE = {"help": "rate of every WAN link, each way", "unit": "bit/s"}
_DELAY = {"help": "one-way delay of every WAN link", "unit": "s"}


@dataclass(frozen=True, slots=True)
class StarTopology:
    """Every data centre has one link to the central one, ``dc0``."""

    data_centers: int = field(default=3, metadata=_SITES)
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    delay: float = field(default=0.04, metadata=_DELAY)


@dataclass(frozen=True, slots=True)
class Ring:
    """Every data centre has a link to the next one, the last to the first; ``dc0`` is the central one."""

    data_centers: int = field(default=4, metadata={**_SITES, "min": 3, "max": 200})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    delay: float = field(default=0.04, metadata=_DELAY)


@dataclass(frozen=True, slots=True)
class Mesh:
    """Every pair of data centres has a link of its own; ``dc0`` is the central one."""

    data_centers: int = field(default=3, metadata={**_SITES, "max": 200})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    delay: float = field(default=0.04, metadata=_DELAY)


@dataclass(frozen=True, slots=True)
class Dumbbell:
    """Data centres on two sides share one link between two routers: the classic bottleneck."""

    data_centers: int = field(default=4, metadata={**_SITES, "max": 1000})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata={"help": "rate of the shared link, each way", "unit": "bit/s"})
    delay: float = field(default=0.04, metadata={"help": "one-way delay of the shared link", "unit": "s"})
    access_rate: float = field(default=100e6, metadata={"help": "rate of the links to the routers", "unit": "bit/s"})
    access_delay: float = field(default=0.001, metadata={"help": "one-way delay of these", "unit": "s"})


@dataclass(frozen=True, slots=True)
class FatTree:
    """A fat tree of switches inside one data centre (Al-Fares et al., SIGCOMM 2008): racks in place of data centres.

    With switches of k ports: k pods, k²/2 racks (``rack0`` …) of ``workers`` machines, k²/2 aggregation and k²/4 core
    switches. Paths of equal length are shared out by pair.
    """

    ports: int = field(default=4, metadata={"help": "ports of a switch; even", "min": 2, "max": 16})
    workers: int = field(default=2, metadata={**_WORKERS, "help": "workers in each rack"})
    rate: float = field(default=1e9, metadata={"help": "rate of every link between switches", "unit": "bit/s"})
    delay: float = field(default=0.00001, metadata={"help": "one-way delay of every link", "unit": "s"})

    @property
    def data_centers(self) -> int:
        return self.ports**2 // 2

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Option, problem and cure of what is wrong."""
        if self.ports % 2:
            yield "ports", f"{self.ports} is odd", f"half of a switch's ports go up; write {self.ports + 1}"


def star(options: StarTopology) -> Graph[str]:
    """``dc0`` in the middle, ``dc1`` … around it."""
    names = _names(options.data_centers)
    graph = _regular(options, [(names[0], name) for name in names[1:]])
    graph.nodes["dc0"]["xy"] = (0.0, 0.0)
    for number, name in enumerate(names[1:]):
        graph.nodes[name]["xy"] = _on_circle(number, len(names) - 1)
    return graph


def ring(options: Ring) -> Graph[str]:
    """``dc0``, ``dc1``, …, and back to ``dc0``."""
    names = _names(options.data_centers)
    return _circle(_regular(options, [*pairwise(names), (names[-1], names[0])]))


def mesh(options: Mesh) -> Graph[str]:
    """All pairs of ``dc0``, ``dc1``, …."""
    return _circle(_regular(options, list(combinations(_names(options.data_centers), 2))))


def dumbbell(options: Dumbbell) -> Graph[str]:
    """Even data centres on the left, odd ones on the right."""
    graph = new_graph("dc0")
    names = _names(options.data_centers)
    for number, name in enumerate(names):
        height = (number // 2) - (math.ceil(len(names) / 2) - 1) / 2
        graph.add_node(name, workers=options.workers, xy=(-2.0 if number % 2 == 0 else 2.0, -height))
    graph.add_node("left", workers=None, xy=(-0.7, 0.0))
    graph.add_node("right", workers=None, xy=(0.7, 0.0))
    join(graph, "left", "right", options.rate, options.delay)
    for number, name in enumerate(names):
        join(graph, name, "left" if number % 2 == 0 else "right", options.access_rate, options.access_delay)
    return graph


def fat_tree(options: FatTree) -> Graph[str]:
    """``rackN`` below ``aggN`` below ``coreN``."""
    half, width = options.ports // 2, options.data_centers
    graph = new_graph("rack0")
    for number in range(width):
        graph.add_node(f"rack{number}", workers=options.workers, xy=(float(number), 0.0))
    for number in range(width):
        graph.add_node(f"agg{number}", workers=None, xy=(float(number), 1.0))
    for number in range(half**2):
        graph.add_node(f"core{number}", workers=None, xy=((number + 0.5) * width / half**2 - 0.5, 2.0))
    for pod in range(options.ports):
        for i in range(half):
            for j in range(half):
                join(graph, f"rack{pod * half + i}", f"agg{pod * half + j}", options.rate, options.delay)
                join(graph, f"agg{pod * half + i}", f"core{i * half + j}", options.rate, options.delay)
    return graph


def _names(count: int) -> list[str]:
    return [f"dc{number}" for number in range(count)]


def _regular(options: StarTopology | Ring | Mesh, edges: list[tuple[str, str]]) -> Graph[str]:
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
BUILDERS: dict[str, Callable[[Any], Graph[str]]] = {
    "star": star,
    "uneven_star": uneven_star,
    "ring": ring,
    "mesh": mesh,
    "dumbbell": dumbbell,
    "fat_tree": fat_tree,
    "geometric": geometric,
    "waxman": waxman,
}
