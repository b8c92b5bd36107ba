"""Finds an order in which a trace's nodes can be done, within a rank and over the whole job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from testbed.job_trace.model import COLLECTIVE, RECEIVE, SEND, JobTrace, RankTrace, TraceNode


def followers(nodes: Sequence[TraceNode]) -> tuple[list[list[int]], list[int]]:
    """Return two lists by place in ``nodes``: the places of the nodes that wait for it, and how many it waits for."""
    place_of = {node.id: place for place, node in enumerate(nodes)}
    after: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for other in node.after:
            after[place_of[other]].append(place)
    return after, [len(node.after) for node in nodes]


def sequence(nodes: Sequence[TraceNode]) -> list[int]:
    """Return the places of all nodes, each after the nodes for which it waits, and otherwise in the order of ``nodes``.

    Nodes on a circle of dependencies, and nodes that wait for them, come last.
    """
    after, missing = followers(nodes)
    ready = [place for place, count in enumerate(missing) if not count]
    heapify(ready)
    found = []
    while ready:
        place = heappop(ready)
        found.append(place)
        for other in after[place]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, other)
    return found + [place for place, count in enumerate(missing) if count]


def operations_of(trace: RankTrace) -> dict[str, list[TraceNode]]:
    """Return a rank's collective operations by group, in the order in which the group makes them."""
    found: dict[str, list[TraceNode]] = defaultdict(list)
    if any(node.kind == COLLECTIVE for node in trace.nodes):
        for place in sequence(trace.nodes):
            node = trace.nodes[place]
            if node.kind == COLLECTIVE:
                found[node.group].append(node)
    return found


def numbered(nodes: Sequence[TraceNode]) -> list[int]:
    """Return, for each send or receive, the number of earlier ones with the same peer and tag; 0 for other nodes."""
    counts: Counter[tuple[str, int, int]] = Counter()
    numbers = []
    for node in nodes:
        channel = (node.kind, node.peer, node.tag)
        numbers.append(counts[channel] if node.kind in (SEND, RECEIVE) else 0)
        counts[channel] += 1
    return numbers


def in_order(job: JobTrace) -> list[tuple[RankTrace, TraceNode]]:
    """Follow all ranks together. Return the nodes that are never reached: those on circles, and nodes waiting for them.

    A receive waits for its send. A collective operation waits for all members of its group, and for the group's
    previous operation.
    """
    walk = _Walk(job)
    return walk.left()


class _Walk:
    """Walks through a job. Nodes are named by (rank, place)."""

    def __init__(self, job: JobTrace) -> None:
        self._job = job
        self._after: list[list[list[int]]] = []
        self._missing: list[list[int]] = []
        self._numbers = [numbered(trace.nodes) for trace in job.ranks]
        self._operation: list[dict[int, int]] = []  # by rank and place, the number of the operation in its group
        self._arrived: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._sent: set[tuple[int, int, int, int]] = set()  # sender, receiver, tag, number
        self._parked: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        for trace in job.ranks:
            after, missing = followers(trace.nodes)
            place_of = {node.id: place for place, node in enumerate(trace.nodes)}
            number_of: dict[int, int] = {}
            for nodes in operations_of(trace).values():
                places = [place_of[node.id] for node in nodes]
                number_of.update({place: number for number, place in enumerate(places)})
                for before, place in pairwise(places):
                    after[before].append(place)
                    missing[place] += 1
            self._after.append(after)
            self._missing.append(missing)
            self._operation.append(number_of)

    def left(self) -> list[tuple[RankTrace, TraceNode]]:
        ready = [
            (rank, place)
            for rank, missing in enumerate(self._missing)
            for place, count in enumerate(missing)
            if not count
        ]
        done = [set[int]() for _ in self._job.ranks]
        while ready:
            for rank, place in self._ended(*ready.pop()):
                done[rank].add(place)
                for other in self._after[rank][place]:
                    self._missing[rank][other] -= 1
                    if not self._missing[rank][other]:
                        ready.append((rank, other))
        return [
            (trace, node)
            for trace in self._job.ranks
            for place, node in enumerate(trace.nodes)
            if place not in done[trace.rank]
        ]

    def _ended(self, rank: int, place: int) -> list[tuple[int, int]]:
        """Return the nodes that end now that this node waits for nothing more at its own rank."""
        node = self._job.ranks[rank].nodes[place]
        number = self._numbers[rank][place]
        if node.kind == SEND:
            message = (rank, node.peer, node.tag, number)
            self._sent.add(message)
            return [(rank, place), *([self._parked.pop(message)] if message in self._parked else [])]
        if node.kind == RECEIVE:
            message = (node.peer, rank, node.tag, number)
            if message in self._sent:
                return [(rank, place)]
            self._parked[message] = (rank, place)
            return []
        if node.kind == COLLECTIVE:
            operation = (node.group, self._operation[rank][place])
            self._arrived[operation].append((rank, place))
            together = self._arrived[operation]
            return together if len(together) == len(self._job.members(node.group)) else []
        return [(rank, place)]
