"""Asynchronous pairwise averaging (AD-PSGD, Lian et al., 2018): which worker asks which, and when the run ends.

A worker that asks sends its model x_a; the other answers at once with its own x_p and moves by (x_a − x_p) / 2; the
first moves by the opposite when the answer is there. Both move by the same amount, so the sum of all models stays,
whatever happens in between; and a worker that is asked waits for no other, so there is no deadlock on any graph. On a
graph with two sides only one side asks, as in the paper.
"""

from __future__ import annotations

from testbed.policy.gossip.graphs import Graph, two_sides


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
