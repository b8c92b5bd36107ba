"""The flow network against SimGrid's C++ (Casanova et al., JPDC 2014) on the same graphs of transfers: the end of every
transfer, and the speed.

    apt-get install libsimgrid-dev g++
    testbed bench simgrid

SimGrid runs its CM02 model without window limit and cross traffic, with one actor per transfer; its time is that of
``Engine::run`` alone. ``difference`` is the largest relative difference of a transfer's end.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from analysis.benchmarks.harness import Row
from testbed.simulation.clock import Clock
from testbed.simulation.flows.network import FlowClass, FlowNetwork

TOLERANCE = 1e-6
_TIMEOUT_S = 300
_OPTIONS = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "maxmin/precision:1e-12",
    "surf/precision:1e-12",
    "contexts/factory:raw",
    "contexts/stack-size:32",
    "contexts/guard-size:0",
)


class GraphTransfer(NamedTuple):
    """A message that begins ``delay_s`` after the end of all transfers ``after``; without these, after time 0."""

    source: int
    target: int
    delay_s: float
    size_bytes: int
    after: tuple[int, ...] = ()


@dataclass
class Graph:
    """A graph of transfers. Links are (capacity in bytes/s, latency in s).

    The path of a transfer consists of the source's uplinks (``up``) and the target's downlinks (``down``).
    """

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
        """Return the graph in the format of ``simgrid_graph.cpp``.

        First come three counts (links, hosts, transfers); then, for each link, capacity and latency; for each host, its
        uplinks and its downlinks; for each transfer, source, target, delay, bytes and ``after``. Lists begin with their
        length.
        """
        lines = [f"{len(self.links)} {len(self.up)} {len(self.transfers)}"]
        lines += [f"{capacity!r} {latency!r}" for capacity, latency in self.links]
        lines += [_numbers(links) for both in zip(self.up, self.down, strict=True) for links in both]
        lines += [f"{t.source} {t.target} {t.delay_s!r} {t.size_bytes} {_numbers(t.after)}" for t in self.transfers]
        return "\n".join(lines) + "\n"


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, (len(numbers), *numbers)))


def replay(graph: Graph, compiled: bool) -> list[float]:
    """Return the end of each transfer (s) on this project's flow network.

    It follows SimGrid's CM02 model of TCP: the latency of the path passes before the first byte, without using
    bandwidth, and links are shared with weights 1 / latency (Velho et al., ACM TOMACS 2013).
    """
    run = _Replay(graph, compiled)
    run.clock.run()
    return run.ends


class _Replay:
    def __init__(self, graph: Graph, compiled: bool) -> None:
        self.clock = Clock()
        self._graph = graph
        self._network = FlowNetwork(self.clock, [capacity for capacity, _ in graph.links], compiled)
        self._classes: dict[tuple[int, ...], tuple[FlowClass, float]] = {}
        self.ends = [math.nan] * len(graph.transfers)
        self._missing = [len(set(transfer.after)) for transfer in graph.transfers]
        self._next: list[list[int]] = [[] for _ in graph.transfers]
        for number, transfer in enumerate(graph.transfers):
            for before in set(transfer.after):
                self._next[before].append(number)
            if not transfer.after:
                self._begin(number)

    def _begin(self, number: int) -> None:
        transfer = self._graph.transfers[number]
        path = self._graph.path(transfer)
        if path not in self._classes:
            latency_s = math.fsum(self._graph.links[link][1] for link in path)
            self._classes[path] = self._network.flow_class(path, 1 / latency_s), latency_s
        flow, latency_s = self._classes[path]
        at_s = self.clock.now + transfer.delay_s + latency_s
        self.clock.at(at_s, lambda _: self._network.start(flow, transfer.size_bytes, partial(self._end, number)))

    def _end(self, number: int) -> None:
        self.ends[number] = self.clock.now
        for following in self._next[number]:
            self._missing[following] -= 1
            if not self._missing[following]:
                self._begin(following)


def two_tier(sites: int, workers: int, rounds: int = 1, size_bytes: int = 50_000_000, seed: int = 1) -> Graph:
    """Return the transfers of rounds with two tiers of servers.

    Uplinks have 100-1000 Mbit/s and 5-100 ms, ports 10 Gbit/s. The duration of a step is lognormal.
    """
    draw = random.Random(f"two-tier/{seed}")
    graph = Graph()
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
    """Return the hosts of a site: the local server on its LAN, the same server on the WAN, and the workers."""
    rate = draw.choice((100e6, 200e6, 500e6, 1000e6)) / 8
    latency = draw.uniform(0.005, 0.1)
    inside = graph.host((graph.link(1.25e9, 5e-5),), (graph.link(1.25e9, 5e-5),))
    outside = graph.host((graph.link(rate, latency),), (graph.link(rate, latency),))
    ports = [(graph.link(1.25e9, 5e-5), graph.link(1.25e9, 5e-5)) for _ in range(workers)]
    return inside, outside, [graph.host((up,), (down,)) for up, down in ports]


def ring(ranks: int, size_bytes: int = 50_000_000, seed: int = 1, steps: int | None = None) -> Graph:
    """Return a ring all-reduce on uneven links. A rank sends when its previous message and that to it have arrived.

    steps  number of steps; ``None``: all, which is twice the number of other ranks
    """
    draw = random.Random(f"ring/{seed}")
    graph = Graph()
    hosts = [graph.host((graph.link(draw.uniform(1e7, 1e8), draw.uniform(0.001, 0.05)),)) for _ in range(ranks)]
    before: list[int] = []
    for _ in range(2 * (ranks - 1) if steps is None else steps):
        now = []
        for rank, host in enumerate(hosts):
            after = (before[rank], before[rank - 1]) if before else ()
            now.append(graph.send(GraphTransfer(host, hosts[(rank + 1) % ranks], 0.0, size_bytes // ranks, after)))
        before = now
    return graph


def random_traffic(sites: int, transfers: int, seed: int = 1) -> Graph:
    """Return transfers between random pairs at random times. Every site has one uplink and one downlink."""
    draw = random.Random(f"random/{seed}")
    graph = Graph()

    def link() -> int:
        return graph.link(draw.choice((100e6, 200e6, 500e6, 1000e6)) / 8, draw.uniform(0.005, 0.1))

    hosts = [graph.host((link(),), (link(),)) for _ in range(sites)]
    for _ in range(transfers):
        source, target = draw.sample(hosts, 2)
        graph.send(GraphTransfer(source, target, draw.uniform(0.0, 10.0), draw.randrange(10**5, 10**8)))
    return graph


def star(sites: int, size_bytes: int = 50_000_000, seed: int = 1) -> Graph:
    """Return transfers from all sites to one hub, at the same time."""
    draw = random.Random(f"star/{seed}")
    graph = Graph()
    hub = graph.host((), (graph.link(1.25e8, 1e-5),))
    for _ in range(sites):
        rate = draw.choice((100e6, 200e6, 500e6)) / 8
        latency = draw.uniform(0.005, 0.1)
        graph.send(GraphTransfer(graph.host((graph.link(rate, latency),)), hub, 0.0, size_bytes))
    return graph


WORKLOADS: dict[str, Callable[[], Graph]] = {
    "star of 300": lambda: star(300),
    "ring of 64": lambda: ring(64),
    "ring of 1000, 20 of 1998 steps": lambda: ring(1000, steps=20),
    "random pairs, 100 sites": lambda: random_traffic(100, 2000),
    "two tiers, 10 x 10": lambda: two_tier(10, 10),
    "two tiers, 100 x 10": lambda: two_tier(100, 10),
    "two tiers, 1000 x 10": lambda: two_tier(1000, 10),
    "two tiers, 100 x 10, 5 rounds": lambda: two_tier(100, 10, 5),
}


def installed() -> bool:
    return shutil.which("g++") is not None and Path("/usr/include/simgrid/s4u.hpp").is_file()


def compiled_program(folder: Path) -> Path:
    """Compile the SimGrid program. Raise ``OSError`` or ``CalledProcessError`` without a compiler or the library."""
    source = Path(__file__).with_name("simgrid_graph.cpp")
    program = folder / "graph"
    command = ["g++", "-O2", "-std=c++17", "-o", str(program), str(source), "-lsimgrid"]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
    return program


def simgrid_times(program: Path, graph: Graph, folder: Path) -> tuple[list[float], float]:
    """Return the end of each transfer in SimGrid (s), and the wall-clock time of its run (s)."""
    path = folder / "graph.txt"
    path.write_text(graph.text(), encoding="utf-8")
    command = [str(program), str(path), *(f"--cfg={option}" for option in _OPTIONS), "--log=root.threshold:error"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    *ends, run_s = ran.stdout.split()
    return [float(end) for end in ends], float(run_s)


def worst_difference(ours: list[float], theirs: list[float]) -> float:
    """Return the largest relative difference between the ends of a transfer; infinite if a transfer does not end."""
    differences = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def measure(options: argparse.Namespace) -> Iterator[Row]:
    if not installed():
        raise SystemExit("SimGrid or g++ is not installed: apt-get install libsimgrid-dev g++")
    replay(two_tier(2, 2), compiled=True)  # numba compiles
    with tempfile.TemporaryDirectory() as name:
        program = compiled_program(Path(name))
        for title, make in WORKLOADS.items():
            graph = make()
            begin_s = time.perf_counter()
            ours = replay(graph, compiled=True)
            ours_s = time.perf_counter() - begin_s
            theirs, theirs_s = simgrid_times(program, graph, Path(name))
            difference = worst_difference(ours, theirs)
            yield {
                "workload": title.ljust(30),
                "transfers": len(ours),
                "end_s": max(ours),
                "difference": difference,
                "ours_s": ours_s,
                "simgrid_s": theirs_s,
                "ok": difference <= TOLERANCE,
            }
