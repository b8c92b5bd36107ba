"""The all-reduce family: which rank sends which part of a tensor to which rank, in which order; without tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.policy.collective.butterfly import binary_blocks, butterfly, recursive_doubling
from testbed.policy.collective.hierarchical import blueconnect, three_phase_ring, torus2d
from testbed.policy.collective.mesh import mesh2d
from testbed.policy.collective.ring import bidirectional_ring, direct, ring
from testbed.policy.collective.rooted import gather_scatter
from testbed.policy.collective.schedule import GroupShape, Schedule
from testbed.policy.collective.tree import binomial_tree, double_binary_tree, tree

Algorithm = Callable[[GroupShape, int], Schedule]

ALL_REDUCE: dict[str, Algorithm] = {
    "tree": tree,
    "binomial_tree": binomial_tree,
    "double_binary_tree": double_binary_tree,
    "butterfly": butterfly,
    "recursive_doubling": recursive_doubling,
    "binary_blocks": binary_blocks,
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "direct": direct,
    "blueconnect": blueconnect,
    "three_phase_ring": three_phase_ring,
    "torus2d": torus2d,
    "mesh2d": mesh2d,
    "gather_scatter": gather_scatter,
}
"""Every dense algorithm: all ranks end with the sum, bit for bit the same."""


@dataclass(frozen=True, slots=True)
class SparseAlgorithm:
    """A sum of each rank's largest elements only, with error feedback.

    ``hierarchical``: dense inside a data centre, sparse between ranks of equal position in all data centres.
    """

    hierarchical: bool


SPARSE = {"hitopk": SparseAlgorithm(hierarchical=True), "flat_topk": SparseAlgorithm(hierarchical=False)}

SELECTORS = {"published": 14, "exact": 3, "random": 3}
"""How a sparse algorithm chooses elements, and how many reads and writes of the whole tensor the choice costs.

The exact choice reads gradient and residual, and writes the residual; MSTopK's bisection takes 4.7 times as long by the
table of measured costs.
"""
