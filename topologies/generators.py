"""Regular and random networks: frozen options that build annotated graphs (``topologies.graph``).

Rates and delays of options hold for each direction of a link. Random networks lie on a square: a seed determines the
coordinates, distances determine the links, and lengths of fibres the delays. Each has its own ``seed``, so that another
seed of the run repeats the experiment on the same network. The generators of networkx are not used, because the
networks of the shipped scenarios must stay the same for every version of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from random import Random
from typing import Any

import networkx as nx

from topologies.graph import Graph, fibre_delay_s, join, new_graph

_SITES = {"help": "data centres, the central one included", "min": 2, "max": 300}
_WORKERS = {"help": "workers in each data centre", "min": 1, "max": 1000}
_RATE = {"help": "rate of every WAN link, each direction", "unit": "bit/s"}
_SIDE = {"help": "side of the square that the data centres lie in, in km", "min": 1, "max": 20_000}
_STRETCH = {"help": "length of a fibre over the straight distance", "min": 1, "max": 10}
_SEED = {"help": "seed of coordinates and links, beside the scenario's", "min": 0}
_DELAY = {"help": "one-way delay of every WAN link", "unit": "s"}


@dataclass(frozen=True, slots=True)
class StarTopology:
    """Every data centre has one link to the central one, ``dc0``."""

    data_centers: int = field(default=3, metadata={**_SITES, "max": 10_000})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
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
        """Return a ring of ``dc0``, ``dc1``, …."""
        names = _names(self.data_centers)
        return _circle(_regular(self, [*pairwise(names), (names[-1], names[0])]))


@dataclass(frozen=True, slots=True)
class Mesh(StarTopology):
    """Every pair of data centres has a link of its own; ``dc0`` is the central one."""

    data_centers: int = field(default=3, metadata={**_SITES, "max": 200})

    def build(self) -> Graph[str]:
        """Return ``dc0``, ``dc1``, … with links between all pairs."""
        return _circle(_regular(self, list(combinations(_names(self.data_centers), 2))))


@dataclass(frozen=True, slots=True)
class Dumbbell:
    """Data centres on two sides share one link between two routers: the classic bottleneck."""

    data_centers: int = field(default=4, metadata={**_SITES, "max": 1000})
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata={"help": "rate of the shared link, each direction", "unit": "bit/s"})
    delay: float = field(default=0.04, metadata={"help": "one-way delay of the shared link", "unit": "s"})
    access_rate: float = field(default=100e6, metadata={"help": "rate of the links to the routers", "unit": "bit/s"})
    access_delay: float = field(default=0.001, metadata={"help": "one-way delay of these", "unit": "s"})

    def build(self) -> Graph[str]:
        """Return a graph with even data centres on the left and odd ones on the right."""
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

    Switches with k ports form k pods, with k²/2 racks (``rack0`` …) of ``workers`` machines, k²/2 aggregation switches
    and k²/4 core switches. Pairs of racks are spread over paths of equal length.
    """

    ports: int = field(default=4, metadata={"help": "ports of a switch; even", "min": 2, "max": 16})
    workers: int = field(default=2, metadata={**_WORKERS, "help": "workers in each rack"})
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
        """Return racks ``rackN``, above them switches ``aggN``, and above these ``coreN``."""
        half = self.ports // 2
        width = self.data_centers
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


@dataclass(frozen=True, slots=True)
class _Scattered:
    """Data centres at random places."""

    data_centers: int = field(default=10, metadata=_SITES)
    workers: int = field(default=2, metadata=_WORKERS)
    rate: float = field(default=20e6, metadata=_RATE)
    side_km: float = field(default=4000.0, metadata=_SIDE)
    stretch: float = field(default=1.5, metadata=_STRETCH)
    seed: int = field(default=1, metadata=_SEED)


@dataclass(frozen=True, slots=True)
class Geometric(_Scattered):
    """Random geometric graph: a link between all pairs nearer than ``radius`` (Gilbert 1961).

    Unconnected parts are joined by the shortest possible links. The central data centre is the one nearest to all
    others.
    """

    radius: float = field(default=0.35, metadata={"help": "longest link, as a share of the side", "above": 0, "max": 2})

    def build(self) -> Graph[str]:
        random = Random(f"geometric/{self.seed}")
        return _scattered(self, random, lambda distance_km, _: distance_km <= self.radius * self.side_km)


@dataclass(frozen=True, slots=True)
class Waxman(_Scattered):
    """Links are likelier between near data centres: P = beta · exp(-d / (alpha · L)), L the largest distance.

    Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988. Unconnected parts are joined by the shortest
    possible links. The central data centre is the one nearest to all others.
    """

    alpha: float = field(default=0.3, metadata={"help": "larger: distance matters less", "above": 0, "max": 100})
    beta: float = field(default=0.8, metadata={"help": "larger: more links", "above": 0, "max": 1})

    def build(self) -> Graph[str]:
        random = Random(f"waxman/{self.seed}")

        def linked(distance_km: float, longest_km: float) -> bool:
            return random.random() < self.beta * math.exp(-distance_km / (self.alpha * longest_km))

        return _scattered(self, random, linked)


@dataclass(frozen=True, slots=True)
class UnevenStar:
    """Every data centre has one link to the central one, ``dc0``, with a rate and a delay drawn at random.

    Rates are drawn log-uniformly between ``slowest`` and ``fastest``, delays uniformly between ``nearest`` and
    ``farthest``.
    """

    data_centers: int = field(default=100, metadata={**_SITES, "max": 10_000})
    workers: int = field(default=2, metadata=_WORKERS)
    slowest: float = field(default=100e6, metadata={"help": "lowest rate of a link, each direction", "unit": "bit/s"})
    fastest: float = field(default=1e9, metadata={"help": "highest rate of a link, each direction", "unit": "bit/s"})
    nearest: float = field(default=0.005, metadata={"help": "shortest one-way delay", "unit": "s"})
    farthest: float = field(default=0.1, metadata={"help": "longest one-way delay", "unit": "s"})
    seed: int = field(default=1, metadata=_SEED)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.slowest > self.fastest:
            yield "slowest", "is above 'fastest'", "exchange them"
        if self.nearest > self.farthest:
            yield "nearest", "is above 'farthest'", "exchange them"

    def build(self) -> Graph[str]:
        """Return ``dc0`` in the middle, and ``dc1`` … around it at distances proportional to their delays."""
        random = Random(f"uneven-star/{self.seed}")
        graph = new_graph("dc0")
        graph.add_node("dc0", workers=self.workers, xy=(0.0, 0.0))
        for number in range(1, self.data_centers):
            name = f"dc{number}"
            rate = self.slowest * (self.fastest / self.slowest) ** random.random()
            delay = random.uniform(self.nearest, self.farthest)
            angle = 2 * math.pi * number / (self.data_centers - 1)
            away = delay / self.farthest if self.farthest else 1.0
            graph.add_node(name, workers=self.workers, xy=(away * math.cos(angle), away * math.sin(angle)))
            join(graph, "dc0", name, round(rate), round(delay, 6))
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


def _scattered(options: _Scattered, random: Random, linked: Callable[[float, float], bool]) -> Graph[str]:
    """Place data centres at random, and add the links for which ``linked(distance, longest distance)`` is true (km)."""
    names = _names(options.data_centers)
    places = {name: (random.uniform(0, options.side_km), random.uniform(0, options.side_km)) for name in names}
    lengths = {(a, b): math.dist(places[a], places[b]) for a, b in combinations(names, 2)}
    longest = max(lengths.values())
    chosen = [pair for pair, length in lengths.items() if linked(length, longest)]
    middle = min(names, key=lambda name: sum(math.dist(places[name], place) for place in places.values()))
    graph = new_graph(middle)
    for name in names:
        graph.add_node(name, workers=options.workers, xy=places[name])
    for a, b in [*chosen, *_gaps(names, chosen, lengths)]:
        join(graph, a, b, options.rate, fibre_delay_s(lengths[a, b], options.stretch))
    return graph


def _gaps(
    names: list[str], chosen: list[tuple[str, str]], lengths: dict[tuple[str, str], float]
) -> list[tuple[str, str]]:
    """Return the shortest additional links that connect the whole network (Kruskal's algorithm)."""
    sets = nx.utils.UnionFind(names)
    for pair in chosen:
        sets.union(*pair)
    found = []
    for a, b in sorted(lengths, key=lambda pair: (lengths[pair], pair)):
        if sets[a] != sets[b]:
            sets.union(a, b)
            found.append((a, b))
    return found


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
