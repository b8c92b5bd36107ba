"""Weights of synchronous mixing: x_i ← keep · x_i + Σ w_ij · x_j, round by round.

Symmetric weights (Metropolis-Hastings; Xiao and Boyd, 2004) are doubly stochastic: the average of all models stays
what it is, and all models go towards it. Pushing is column stochastic only: what a rank gives away adds up to one,
and push-sum (Kempe et al., 2003) divides by how much weight has come in.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from testbed.policy.gossip.graphs import Graph, hops, two_sides


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of one round: the ranks that it sends its model to, and those it averages with, with weights."""

    keep: float
    sends: tuple[int, ...]
    receives: tuple[tuple[int, float], ...]

    def without(self, lost: Container[int], *, pushes: bool) -> Part:
        """Return this part without lost ranks. What they would have been given, or have given, is kept instead."""
        sends = tuple(rank for rank in self.sends if rank not in lost)
        receives = tuple(pair for pair in self.receives if pair[0] not in lost)
        if pushes:  # a share that is not pushed stays; one that does not come is missing in model and weight alike
            share = (1.0 - self.keep) / max(1, len(self.sends))
            return Part(self.keep + share * (len(self.sends) - len(sends)), sends, receives)
        return Part(1.0 - sum(weight for _, weight in receives), sends, receives)


class Metropolis:
    """w_ij = 1 / (1 + max(degree of i, degree of j)) for neighbours."""

    period = 1

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.size = len(graph)

    def part(self, round_: int, rank: int) -> Part:
        graph = self._graph
        neighbours = self._graph[rank]
        weights = tuple((other, 1.0 / (1 + max(len(neighbours), len(graph[other])))) for other in neighbours)
        return Part(1.0 - sum(weight for _, weight in weights), neighbours, weights)


class PushToAll:
    """Each gives equal shares to itself and to all neighbours."""

    period = 1

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.size = len(graph)

    def part(self, round_: int, rank: int) -> Part:
        neighbours = self._graph[rank]
        received = tuple((other, 1.0 / (1 + len(self._graph[other]))) for other in neighbours)
        return Part(1.0 / (1 + len(neighbours)), neighbours, received)


class PushToOne:
    """Each keeps one half and gives the other to the rank 1, 2, 4, … further on, one after the other (SGP).

    ``groups``: ranks that exchange among themselves; each counts on inside its group.
    """

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.size = sum(map(len, groups))
        self._places = {rank: (group, place) for group in groups for place, rank in enumerate(group)}
        self.period = math.lcm(*(max(1, len(hops(len(group)))) for group in groups))

    def part(self, round_: int, rank: int) -> Part:
        """The hop of this round."""
        group, place = self._places[rank]
        size = len(group)
        steps = hops(len(group))
        if not steps:
            return Part(1.0, (), ())
        hop = steps[round_ % len(steps)]
        return Part(0.5, (group[(place + hop) % size],), ((group[(place - hop) % size], 0.5),))


class RandomPairs:
    """In every round all pair up anew, and both of a pair take their mean; of an odd number one stays alone.

    NoLoCo (Kolehmainen et al., 2025, arXiv 2506.10911) averages so, instead of reducing over all. Pairs are drawn from
    ``seed`` and the round, the same at all ranks, and repeat after ``period`` rounds. Models pass from hand to hand as
    in an epidemic: one has reached all after about log₂ of the ranks, and some rounds more.

    ``groups``: ranks that pair up among themselves.
    """

    period = 64

    def __init__(self, groups: Sequence[Sequence[int]], seed: int) -> None:
        self.size = sum(map(len, groups))
        self._groups = groups
        self._seed = seed
        self._partners: dict[int, dict[int, int]] = {}  # by round of a period, then by rank

    def part(self, round_: int, rank: int) -> Part:
        """The mean with this round's partner."""
        place = round_ % self.period
        if place not in self._partners:
            self._partners[place] = self._drawn(place)
        partner = self._partners[place].get(rank)
        return Part(1.0, (), ()) if partner is None else Part(0.5, (partner,), ((partner, 0.5),))

    def _drawn(self, place: int) -> dict[int, int]:
        partners: dict[int, int] = {}
        for group in self._groups:
            shuffled = sorted(group, key=lambda rank: hashlib.sha256(f"{self._seed}/{place}/{rank}".encode()).digest())
            for one, other in zip(shuffled[::2], shuffled[1::2], strict=False):
                partners |= {one: other, other: one}
        return partners


OneMixing = Metropolis | PushToAll | PushToOne | RandomPairs


class LanAndWan:
    """Every ``lan_rounds``-th round is one of ``across``; those between are of ``inside``, whose ranks are close."""

    def __init__(self, inside: OneMixing, across: OneMixing, lan_rounds: int) -> None:
        self._inside = inside
        self.across = across
        self.lan_rounds = lan_rounds
        self.size = across.size
        self.period = lan_rounds * math.lcm(inside.period, across.period)

    def part(self, round_: int, rank: int) -> Part:
        """The next part of one or the other."""
        wan_rounds, since = divmod(round_, self.lan_rounds)
        if since == self.lan_rounds - 1:
            return self.across.part(wan_rounds, rank)
        return self._inside.part(wan_rounds * (self.lan_rounds - 1) + since, rank)


Mixing = OneMixing | LanAndWan  # who averages with whom; repeats after ``period`` rounds


def rounds_to_hear_of_all(mixing: Mixing, rank: int, since: int) -> int:
    """Return after how many rounds, ``since`` the first one, ``rank`` has heard of all, by models that were passed on.

    ``ValueError`` when it never does: the graph is not connected.
    """
    return _rounds_to_hear(mixing, since % mixing.period, listener=rank, teller=None)


def rounds_to_tell_all(mixing: Mixing, rank: int, since: int) -> int:
    """Return after how many rounds, ``since`` the first one, all have heard of ``rank``; likewise."""
    return _rounds_to_hear(mixing, since % mixing.period, listener=None, teller=rank)


@lru_cache(maxsize=256)
def _rounds_to_hear(mixing: Mixing, since: int, listener: int | None, teller: int | None) -> int:
    """Return after how many rounds the listener has heard of the teller; ``None``: all of them."""
    tellers = (1 << mixing.size) - 1 if teller is None else 1 << teller
    listeners = range(mixing.size) if listener is None else (listener,)
    known = [1 << rank for rank in range(mixing.size)]  # by rank: a bit for each of whom it has heard
    rounds = 0
    while any(known[rank] & tellers != tellers for rank in listeners):
        parts = [mixing.part(since + rounds, rank) for rank in range(mixing.size)]
        known = [
            reduce(or_, [known[source] for source, _ in part.receives], known[rank]) for rank, part in enumerate(parts)
        ]
        rounds += 1
        if rounds > mixing.period * (mixing.size + 1):
            raise ValueError("the graph is not connected: models of some workers never reach some others")
    return rounds


class Partners:
    """One worker's partners in asynchronous pairwise averaging (AD-PSGD, Lian et al., 2018).

    A worker that asks sends its model x_a; the other answers at once with its own x_p and moves by (x_a − x_p) / 2; the
    first moves by the opposite when the answer is there. Both move by the same amount, so the sum of all models stays,
    whatever happens in between; and a worker that is asked waits for no other, so there is no deadlock on any graph.
    On a graph with two sides only one side asks, as in the paper.
    """

    def __init__(self, graph: Graph, rank: int) -> None:
        sides = two_sides(graph)
        self.neighbours = graph[rank]
        self.asks = bool(self.neighbours) and (sides is None or sides[rank])

    def partner(self, draw: int) -> int:
        """Return the rank to ask, from ``draw``, uniform over a large range."""
        return self.neighbours[draw % len(self.neighbours)]
