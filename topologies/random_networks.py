"""Random networks on a square: coordinates from a seed, links by distance, delays by the length of the fibre.

Every kind has a ``seed`` of its own, beside the scenario's: another seed of the run is the same experiment on the same
network. networkx' generators are not used: the shipped scenarios' networks must stay the same for every version of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import networkx as nx

from topologies.graph import Graph, fibre_delay_s, join, new_graph

SITES = {"help": "data centres, the central one included", "min": 2, "max": 300}
WORKERS = {"help": "workers in each data centre", "min": 1, "max": 1000}
RATE = {"help": "rate of every WAN link, each direction", "unit": "bit/s"}
_SIDE = {"help": "side of the square that the data centres lie in, in km", "min": 1, "max": 20_000}
_STRETCH = {"help": "length of a fibre over the straight distance", "min": 1, "max": 10}
_SEED = {"help": "seed of coordinates and links, beside the scenario's", "min": 0}


@dataclass(frozen=True, slots=True)
class _Scattered:
    """Data centres at random places."""

    data_centers: int = field(default=10, metadata=SITES)
    workers: int = field(default=2, metadata=WORKERS)
    rate: float = field(default=20e6, metadata=RATE)
    side_km: float = field(default=4000.0, metadata=_SIDE)
    stretch: float = field(default=1.5, metadata=_STRETCH)
    seed: int = field(default=1, metadata=_SEED)


@dataclass(frozen=True, slots=True)
class Geometric(_Scattered):
    """Random geometric graph: a link between all pairs nearer than ``radius`` (Gilbert 1961).

    Separate parts are joined over the shortest gaps. The central data centre is the one nearest to all others.
    """

    radius: float = field(default=0.35, metadata={"help": "longest link, as a share of the side", "above": 0, "max": 2})

    def build(self) -> Graph[str]:
        random = Random(f"geometric/{self.seed}")
        return _scattered(self, random, lambda distance_km, _: distance_km <= self.radius * self.side_km)


@dataclass(frozen=True, slots=True)
class Waxman(_Scattered):
    """Links are likelier between near data centres: P = beta · exp(-d / (alpha · L)), L the largest distance.

    Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988. Separate parts are joined over the shortest
    gaps. The central data centre is the one nearest to all others.
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
    """Every data centre has one link to the central one, ``dc0``; no two are alike: rates are drawn log-uniformly
    between ``slowest`` and ``fastest``, delays uniformly between ``nearest`` and ``farthest``."""

    data_centers: int = field(default=100, metadata={**SITES, "max": 10_000})
    workers: int = field(default=2, metadata=WORKERS)
    slowest: float = field(default=100e6, metadata={"help": "lowest rate of a link, each direction", "unit": "bit/s"})
    fastest: float = field(default=1e9, metadata={"help": "highest rate of a link, each direction", "unit": "bit/s"})
    nearest: float = field(default=0.005, metadata={"help": "shortest one-way delay", "unit": "s"})
    farthest: float = field(default=0.1, metadata={"help": "longest one-way delay", "unit": "s"})
    seed: int = field(default=1, metadata=_SEED)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure of every violation."""
        if self.slowest > self.fastest:
            yield "slowest", "is above 'fastest'", "exchange them"
        if self.nearest > self.farthest:
            yield "nearest", "is above 'farthest'", "exchange them"

    def build(self) -> Graph[str]:
        """Return ``dc0`` in the middle and ``dc1`` … around it, by delay."""
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


def _scattered(options: _Scattered, random: Random, linked: Callable[[float, float], bool]) -> Graph[str]:
    """Place data centres at random, and add the links that ``linked(distance, longest distance)`` selects."""
    names = [f"dc{number}" for number in range(options.data_centers)]
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
    """Return the shortest further links that make the network connected (Kruskal's algorithm)."""
    sets = nx.utils.UnionFind(names)
    for pair in chosen:
        sets.union(*pair)
    found = []
    for a, b in sorted(lengths, key=lambda pair: (lengths[pair], pair)):
        if sets[a] != sets[b]:
            sets.union(a, b)
            found.append((a, b))
    return found
