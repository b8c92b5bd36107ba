"""Graphs of transfers that wait for each other: the workloads on which the flow network is held against SimGrid's.

As a file: three counts (links, hosts, transfers); by link its capacity (bytes/s) and latency (s); by host the links of
its way up, then of its way down, each with their count before them; by transfer source, target, delay, bytes, and the
number of transfers to wait for before them. A transfer begins ``delay`` after the last that it waits for. Its path is
the source's way up and the target's way down.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple


class GraphTransfer(NamedTuple):
    """One message of whole bytes."""

    source: int
    target: int
    delay_s: float
    size_bytes: int
    after: tuple[int, ...] = ()


@dataclass
class Graph:
    """Links are (capacity, latency)."""

    links: list[tuple[float, float]] = field(default_factory=list)
    up: list[tuple[int, ...]] = field(default_factory=list)
    down: list[tuple[int, ...]] = field(default_factory=list)
    transfers: list[GraphTransfer] = field(default_factory=list)

    def link(self, capacity: float, latency_s: float) -> int:
        self.links.append((capacity, latency_s))
        return len(self.links) - 1

    def host(self, up: tuple[int, ...] = (), down: tuple[int, ...] = ()) -> int:
        self.up.append(up)
        self.down.append(down)
        return len(self.up) - 1

    def send(self, transfer: GraphTransfer) -> int:
        self.transfers.append(transfer)
        return len(self.transfers) - 1

    def path(self, transfer: GraphTransfer) -> tuple[int, ...]:
        return self.up[transfer.source] + self.down[transfer.target]

    def text(self) -> str:
        """As SimGrid's side reads it."""
        lines = [f"{len(self.links)} {len(self.up)} {len(self.transfers)}"]
        lines += [f"{capacity!r} {latency!r}" for capacity, latency in self.links]
        lines += [_numbers(way) for ways in zip(self.up, self.down, strict=True) for way in ways]
        lines += [f"{t.source} {t.target} {t.delay_s!r} {t.size_bytes} {_numbers(t.after)}" for t in self.transfers]
        return "\n".join(lines) + "\n"


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, (len(numbers), *numbers)))


def two_tier(sites: int, workers: int, rounds: int = 1, size_bytes: int = 50_000_000, seed: int = 1) -> Graph:
    """A two-tier parameter server: uplinks of 100-1000 Mbit/s and 5-100 ms, lognormal compute, 10 Gbit/s ports."""
    draw, graph = random.Random(f"two-tier/{seed}"), Graph()
    top = graph.host((graph.link(1.25e9, 1e-5),), (graph.link(1.25e9, 1e-5),))
    places = [_site(graph, draw, workers) for _ in range(sites)]
    begin: list[list[tuple[int, ...]]] = [[() for _ in range(workers)] for _ in range(sites)]
    for _ in range(rounds):
        ups = []
        for (inside, outside, members), ready in zip(places, begin, strict=True):
            steps = [draw.lognormvariate(-1.9, 0.5) for _ in members]
            pushes = [
                graph.send(GraphTransfer(member, inside, step, size_bytes, after))
                for member, step, after in zip(members, steps, ready, strict=True)
            ]
            ups.append(graph.send(GraphTransfer(outside, top, 0.0, size_bytes, tuple(pushes))))
        for d, (inside, outside, members) in enumerate(places):
            value = graph.send(GraphTransfer(top, outside, 0.0, size_bytes, tuple(ups)))
            begin[d] = [(graph.send(GraphTransfer(inside, member, 0.0, size_bytes, (value,))),) for member in members]
    return graph


def _site(graph: Graph, draw: random.Random, workers: int) -> tuple[int, int, list[int]]:
    """The local server as its workers see it, as the WAN sees it, and its workers."""
    rate, latency = draw.choice((100e6, 200e6, 500e6, 1000e6)) / 8, draw.uniform(0.005, 0.1)
    inside = graph.host((graph.link(1.25e9, 5e-5),), (graph.link(1.25e9, 5e-5),))
    outside = graph.host((graph.link(rate, latency),), (graph.link(rate, latency),))
    ports = [(graph.link(1.25e9, 5e-5), graph.link(1.25e9, 5e-5)) for _ in range(workers)]
    return inside, outside, [graph.host((up,), (down,)) for up, down in ports]


def ring(ranks: int, size_bytes: int = 50_000_000, seed: int = 1) -> Graph:
    """A ring all-reduce on uneven links: each rank's message waits for the one before from its left."""
    draw, graph = random.Random(f"ring/{seed}"), Graph()
    hosts = [graph.host((graph.link(draw.uniform(1e7, 1e8), draw.uniform(0.001, 0.05)),)) for _ in range(ranks)]
    before: list[int] = []
    for _ in range(2 * (ranks - 1)):
        now = []
        for rank, host in enumerate(hosts):
            after = (before[rank], before[rank - 1]) if before else ()
            now.append(graph.send(GraphTransfer(host, hosts[(rank + 1) % ranks], 0.0, size_bytes // ranks, after)))
        before = now
    return graph


def random_traffic(sites: int, transfers: int, seed: int = 1) -> Graph:
    """Transfers between random pairs at random times; every site has one link up and one down."""
    draw, graph = random.Random(f"random/{seed}"), Graph()

    def link() -> int:
        return graph.link(draw.choice((100e6, 200e6, 500e6, 1000e6)) / 8, draw.uniform(0.005, 0.1))

    hosts = [graph.host((link(),), (link(),)) for _ in range(sites)]
    for _ in range(transfers):
        source, target = draw.sample(hosts, 2)
        graph.send(GraphTransfer(source, target, draw.uniform(0.0, 10.0), draw.randrange(10**5, 10**8)))
    return graph


def star(sites: int, size_bytes: int = 50_000_000, seed: int = 1) -> Graph:
    """All to one, at the same time."""
    draw, graph = random.Random(f"star/{seed}"), Graph()
    hub = graph.host((), (graph.link(1.25e8, 1e-5),))
    for _ in range(sites):
        rate, latency = draw.choice((100e6, 200e6, 500e6)) / 8, draw.uniform(0.005, 0.1)
        graph.send(GraphTransfer(graph.host((graph.link(rate, latency),)), hub, 0.0, size_bytes))
    return graph
