"""Weights of synchronous mixing: x_i ← keep · x_i + Σ w_ij · x_j, round by round.

Symmetric weights (Metropolis-Hastings; Xiao and Boyd, 2004) are doubly stochastic: mixing preserves the average of all
models, and all models converge to it. Push weights are only column stochastic: the shares that a rank keeps and gives
away add up to one. So push-sum (Kempe et al., 2003) divides each model by the weight that has arrived with it.
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
    """One rank's part of one round.

    keep      weight of the rank's own model
    sends     the ranks to which it sends its model
    receives  the ranks whose models it receives, each with its weight
    """

    keep: float
    sends: tuple[int, ...]
    receives: tuple[tuple[int, float], ...]

    def without(self, lost: Container[int], *, pushes: bool) -> Part:
        """Return this part without lost ranks: the rank keeps their weights, or its shares for them (``pushes``)."""
        sends = tuple(rank for rank in self.sends if rank not in lost)
        receives = tuple(pair for pair in self.receives if pair[0] not in lost)
        if pushes:  # a share that does not arrive is missing in model and weight alike, so it needs no substitute
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
    """Each rank divides its model equally among itself and all its neighbours."""

    period = 1

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.size = len(graph)

    def part(self, round_: int, rank: int) -> Part:
        neighbours = self._graph[rank]
        received = tuple((other, 1.0 / (1 + len(self._graph[other]))) for other in neighbours)
        return Part(1.0 / (1 + len(neighbours)), neighbours, received)


class PushToOne:
    """Each rank keeps one half and pushes the other to the rank 1, 2, 4, … places further on, in turn by round (SGP).

    ``groups``: ranks that exchange among themselves; places are counted inside the group.
    """

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.size = sum(map(len, groups))
        self._places = {rank: (group, place) for group in groups for place, rank in enumerate(group)}
        self.period = math.lcm(*(max(1, len(hops(len(group)))) for group in groups))

    def part(self, round_: int, rank: int) -> Part:
        """Return the part with this round's hop."""
        group, place = self._places[rank]
        size = len(group)
        steps = hops(len(group))
        if not steps:
            return Part(1.0, (), ())
        hop = steps[round_ % len(steps)]
        return Part(0.5, (group[(place + hop) % size],), ((group[(place - hop) % size], 0.5),))


class RandomPairs:
    """In every round the ranks form new pairs, and both of a pair take their mean; of an odd number, one stays alone.

    NoLoCo (Kolehmainen et al., 2025, arXiv 2506.10911) averages in this way instead of reducing over all ranks. Pairs
    are drawn from ``seed`` and the round, equally at all ranks, and repeat after ``period`` rounds. A model spreads
    like an epidemic: it influences all p ranks after a few rounds more than log₂ p.

    ``groups``: ranks that pair up among themselves.
    """

    period = 64

    def __init__(self, groups: Sequence[Sequence[int]], seed: int) -> None:
        self.size = sum(map(len, groups))
        self._groups = groups
        self._seed = seed
        self._partners: dict[int, dict[int, int]] = {}  # by round of a period, then by rank

    def part(self, round_: int, rank: int) -> Part:
        """Return the part of a mean with this round's partner."""
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
    """Every ``lan_rounds``-th round mixes by ``across``, over the WAN; all others mix by ``inside``, over the LAN."""

    def __init__(self, inside: OneMixing, across: OneMixing, lan_rounds: int) -> None:
        self._inside = inside
        self.across = across
        self.lan_rounds = lan_rounds
        self.size = across.size
        self.period = lan_rounds * math.lcm(inside.period, across.period)

    def part(self, round_: int, rank: int) -> Part:
        """Return the part of ``across`` or ``inside``, whose own rounds are counted separately."""
        wan_rounds, since = divmod(round_, self.lan_rounds)
        if since == self.lan_rounds - 1:
            return self.across.part(wan_rounds, rank)
        return self._inside.part(wan_rounds * (self.lan_rounds - 1) + since, rank)


Mixing = OneMixing | LanAndWan  # who averages with whom; repeats after ``period`` rounds


def rounds_to_hear_of_all(mixing: Mixing, rank: int, since: int) -> int:
    """Return after how many rounds, counted from round ``since``, the models of all ranks have influenced ``rank``'s.

    Raise ``ValueError`` if they never do: the graph is not connected.
    """
    return _rounds_to_hear(mixing, since % mixing.period, listener=rank, teller=None)


def rounds_to_tell_all(mixing: Mixing, rank: int, since: int) -> int:
    """Return after how many rounds, counted from round ``since``, the model of ``rank`` has influenced all others.

    Raise ``ValueError`` if it never does: the graph is not connected.
    """
    return _rounds_to_hear(mixing, since % mixing.period, listener=None, teller=rank)


@lru_cache(maxsize=256)
def _rounds_to_hear(mixing: Mixing, since: int, listener: int | None, teller: int | None) -> int:
    """Return after how many rounds the teller's model has influenced the listener's; ``None``: every rank."""
    tellers = (1 << mixing.size) - 1 if teller is None else 1 << teller
    listeners = range(mixing.size) if listener is None else (listener,)
    known = [1 << rank for rank in range(mixing.size)]  # by rank: a bit for each rank whose model has influenced it
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

    The asking worker sends its model x_a. Its partner answers at once with its own model x_p and moves by
    (x_a − x_p) / 2. When the answer arrives, the asking worker moves by the opposite amount. So the sum of all models
    is preserved, whatever happens in between. A partner waits for no other worker, so no graph can deadlock. On a
    bipartite graph only one side asks, as in the paper.
    """

    def __init__(self, graph: Graph, rank: int) -> None:
        sides = two_sides(graph)
        self.neighbours = graph[rank]
        self.asks = bool(self.neighbours) and (sides is None or sides[rank])

    def partner(self, draw: int) -> int:
        """Return the rank to ask, from ``draw``, uniform over a large range."""
        return self.neighbours[draw % len(self.neighbours)]
