"""Weights of synchronous mixing: x_i ← keep · x_i + Σ w_ij · x_j, round by round.

Symmetric weights (Metropolis-Hastings; Xiao and Boyd, 2004) are doubly stochastic: the average of all models stays
what it is, and all models go towards it. Pushing is column stochastic only: what a rank gives away adds up to one,
and push-sum (Kempe et al., 2003) divides by how much weight has come in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from testbed.policy.gossip.graphs import Graph, hops, two_sides

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of one round: the ranks that it sends its model to, and those it averages with, with weights."""

    keep: float
    sends: tuple[int, ...]
    receives: tuple[tuple[int, float], ...]


class Mixing(Protocol):
    """Which ranks average with which, in every round; repeats after ``period`` rounds."""

    size: int
    period: int

    def part(self, round_: int, rank: int) -> Part: ...


class Metropolis:
    """w_ij = 1 / (1 + max(degree of i, degree of j)) for neighbours."""

    period = 1

    def __init__(self, graph: Graph) -> None:
        self._graph, self.size = graph, len(graph)

    def part(self, round_: int, rank: int) -> Part:
        """The same in every round."""
        neighbours = self._graph[rank]
        weights = tuple((other, self._weight(rank, other)) for other in neighbours)
        return Part(1.0 - sum(weight for _, weight in weights), neighbours, weights)

    def _weight(self, rank: int, other: int) -> float:
        return 1.0 / (1 + max(len(self._graph[rank]), len(self._graph[other])))


class PushToAll:
    """Each gives equal shares to itself and to all neighbours."""

    period = 1

    def __init__(self, graph: Graph) -> None:
        self._graph, self.size = graph, len(graph)

    def part(self, round_: int, rank: int) -> Part:
        """The same in every round."""
        neighbours = self._graph[rank]
        received = tuple((other, 1.0 / (1 + len(self._graph[other]))) for other in neighbours)
        return Part(1.0 / (1 + len(neighbours)), neighbours, received)


class PushToOne:
    """Each keeps one half and gives the other to the rank 1, 2, 4, … further on, one after the other (SGP)."""

    def __init__(self, size: int) -> None:
        self.size, self._hops = size, hops(size)
        self.period = max(1, len(self._hops))

    def part(self, round_: int, rank: int) -> Part:
        """The hop of this round."""
        if not self._hops:
            return Part(1.0, (), ())
        hop = self._hops[round_ % self.period]
        return Part(0.5, ((rank + hop) % self.size,), (((rank - hop) % self.size, 0.5),))


def matrix(mixing: Mixing, round_: int) -> Matrix:
    """Row i: the weights with which rank i takes the models of all."""
    weights = np.zeros((mixing.size, mixing.size))
    for rank in range(mixing.size):
        part = mixing.part(round_, rank)
        weights[rank, rank] = part.keep
        for other, weight in part.receives:
            weights[rank, other] += weight
    return weights


def is_column_stochastic(weights: Matrix, tolerance: float = 1e-12) -> bool:
    """Nothing negative, and all that a rank gives away adds up to what it had: the sum of all models stays."""
    return bool((weights >= -tolerance).all() and np.abs(weights.sum(axis=0) - 1).max() <= tolerance)


def is_doubly_stochastic(weights: Matrix, tolerance: float = 1e-12) -> bool:
    """Rows too: equal models stay equal, without any correction."""
    return is_column_stochastic(weights, tolerance) and bool(np.abs(weights.sum(axis=1) - 1).max() <= tolerance)


def check(mixing: Mixing, *, doubly: bool) -> None:
    """``ValueError`` when weights do not add up, or messages sent and expected differ."""
    for round_ in range(mixing.period):
        weights = matrix(mixing, round_)
        if not (is_doubly_stochastic(weights) if doubly else is_column_stochastic(weights)):
            raise ValueError(f"weights of round {round_} do not add up to one")
        sent = {(rank, to) for rank in range(mixing.size) for to in mixing.part(round_, rank).sends}
        taken = {(source, rank) for rank in range(mixing.size) for source, _ in mixing.part(round_, rank).receives}
        if sent != taken:
            raise ValueError(f"round {round_}: sent but not expected, or the other way round: {sorted(sent ^ taken)}")


def rounds_to_reach_all(mixing: Mixing) -> int:
    """Return the number of rounds after which information that travels with the models has reached all ranks from all.

    ``ValueError`` when it never does: the graph is not connected.
    """
    worst = 0
    for start in range(mixing.period):
        known = [{rank} for rank in range(mixing.size)]
        rounds = 0
        while any(len(some) < mixing.size for some in known):
            before = [set(some) for some in known]
            for rank in range(mixing.size):
                for source, _ in mixing.part(start + rounds, rank).receives:
                    known[rank] |= before[source]
            rounds += 1
            if rounds > mixing.period * (mixing.size + 1):
                raise ValueError("the graph is not connected: models of some workers never reach some others")
        worst = max(worst, rounds)
    return worst


class Partners:
    """One worker's partners."""

    def __init__(self, graph: Graph, rank: int) -> None:
        sides = two_sides(graph)
        self._neighbours = graph[rank]
        self.asks = bool(self._neighbours) and (sides is None or sides[rank])

    def partner(self, draw: int) -> int:
        """Return the rank to ask, from ``draw``, uniform over a large range."""
        return self._neighbours[draw % len(self._neighbours)]


class StepCounter:
    """Counts the steps of all workers at one of them: the run ends when they have made ``steps`` together."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def on_step(self) -> bool:
        """Somebody has made a step. True when that was the last one that the run needs."""
        self._left -= 1
        return self._left == 0
