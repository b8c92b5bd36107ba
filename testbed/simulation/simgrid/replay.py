"""A graph of transfers on this project's flow network, under SimGrid's CM02 model of TCP.

CM02: the latency of the path passes before the first byte, without using bandwidth; links are shared by weights
1 / latency (Velho et al., ACM TOMACS 2013; its window limit and cross traffic are switched off on both sides).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowClass, FlowNetwork
from testbed.simulation.simgrid.graph import Graph, GraphTransfer


def replay(graph: Graph, compiled: bool) -> list[float]:
    """When each transfer ends."""
    run = _Replay(graph, compiled)
    run.clock.run()
    return run.ends


class _Replay:
    """One run."""

    def __init__(self, graph: Graph, compiled: bool) -> None:
        self.clock, self._graph = Clock(), graph
        longest = max(len(graph.path(transfer)) for transfer in graph.transfers)
        self._network = FlowNetwork(self.clock, [capacity for capacity, _ in graph.links], longest, compiled)
        self._classes: dict[tuple[int, ...], tuple[FlowClass, float]] = {}
        self.ends = [math.nan] * len(graph.transfers)
        self._missing = [len(set(transfer.after)) for transfer in graph.transfers]
        self._next: list[list[int]] = [[] for _ in graph.transfers]
        for number, transfer in enumerate(graph.transfers):
            for before in set(transfer.after):
                self._next[before].append(number)
            if not transfer.after:
                self._begin(number, transfer)

    def _begin(self, number: int, transfer: GraphTransfer) -> None:
        flow, latency_s = self._flow(transfer)
        at_s = self.clock.now + transfer.delay_s + latency_s
        self.clock.at(at_s, lambda _: self._network.start(flow, transfer.size_bytes, self._ender(number)))

    def _flow(self, transfer: GraphTransfer) -> tuple[FlowClass, float]:
        path = self._graph.path(transfer)
        if path not in self._classes:
            latency_s = math.fsum(self._graph.links[link][1] for link in path)
            self._classes[path] = self._network.flow_class(path, 1 / latency_s), latency_s
        return self._classes[path]

    def _ender(self, number: int) -> Callable[[], None]:
        def end() -> None:
            self.ends[number] = self.clock.now
            for following in self._next[number]:
                self._missing[following] -= 1
                if not self._missing[following]:
                    self._begin(following, self._graph.transfers[following])

        return end
