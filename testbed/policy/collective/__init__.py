"""The all-reduce family: which rank sends which part of a tensor to which rank, in which order; without tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from testbed.axes import option
from testbed.policy.collective.butterfly import binary_blocks, butterfly, recursive_doubling
from testbed.policy.collective.gloo import GlooOptions
from testbed.policy.collective.hierarchical import blueconnect, three_phase_ring, torus2d
from testbed.policy.collective.inside import SERVERS, Inside
from testbed.policy.collective.mpi import MpiOptions
from testbed.policy.collective.overlap import AFTERWARDS, OVERLAP
from testbed.policy.collective.ring import bidirectional_ring, direct, ring
from testbed.policy.collective.schedule import GroupShape, Schedule
from testbed.policy.collective.shares import KINDS as SHARED_WORK
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
}
"""Every dense algorithm: all ranks end with the sum, bit for bit the same."""


@dataclass(frozen=True, slots=True)
class SparseAlgorithm:
    """A sum of each rank's largest elements only, with error feedback.

    ``hierarchical``: dense inside a data centre, sparse between ranks of equal position in all data centres.
    """

    hierarchical: bool


SPARSE = {"hitopk": SparseAlgorithm(hierarchical=True), "flat_topk": SparseAlgorithm(hierarchical=False)}

SELECTORS = ("exact", "published", "random")
"""How a sparse algorithm chooses what to send."""

LIBRARIES: dict[str, type[GlooOptions | MpiOptions]] = {"gloo": GlooOptions, "mpi": MpiOptions}
"""Paradigms whose sums are made by a library with sockets of its own."""

INSIDE = {"ring": Inside(), "gloo": Inside(library=True), "nccl": Inside(library=True, on_gpu=True)}
"""How workers of a data centre sum among themselves: around a ring of this project's, or by a library."""


def inside_of(options: Mapping[str, Any]) -> Inside | None:
    """Return how workers sum inside, by the options of a paradigm; ``None`` if they do not."""
    return INSIDE.get(options.get("inside", SERVERS))


@dataclass(frozen=True, slots=True)
class AllReduceOptions:
    """Data-parallel training without servers: gradients are summed over the workers, each applies the same step."""

    algorithm: str = option("ring", "how gradients are summed", choices=(*ALL_REDUCE, *SPARSE))
    bucket: int = option(25_000_000, "bytes of gradients that are summed together", unit="bytes")
    overlap: str = option(AFTERWARDS, **OVERLAP)
    segments: int = option(
        0,
        "pieces of each chunk, sent one after another so that hops overlap; 0: pieces of 16 KB across data centres, at "
        "most 8",
        max=64,
    )
    rank_order: str = option(
        "network", "order of ranks: as listed, or the best ring on the network", choices=("plan", "network")
    )
    density: float = option(0.01, "share of elements that hitopk and flat_topk send", unit="share")
    selector: str = option(
        SELECTORS[0],
        "which elements hitopk and flat_topk send. exact: the largest; published: about the largest, by MSTopK's "
        "search for a threshold; random: any",
        choices=SELECTORS,
    )
    coordinated: bool = option(False, "hitopk: choose the largest of the whole data centre, not of each shard")
    inside: str = option(
        "ring",
        "hitopk: how the workers of a data centre sum before they choose, and gather. ring: by this project's own "
        "collectives; gloo, nccl: by torch.distributed, on the CPU or on GPUs",
        choices=tuple(INSIDE),
    )
    optimizer_work: str = option(
        "replicated",
        "replicated: each worker takes the whole optimizer step; norms: each takes LARS' norms of a share; "
        "update: each also updates its share, and all gather the new values",
        choices=SHARED_WORK,
    )
    shared_by: str = option("data_center", "who shares the optimizer's work", choices=("data_center", "all"))

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield options set to other than their default that the chosen algorithm does not look at."""
        looked_at = {"algorithm", "bucket", "overlap", "optimizer_work"}
        if self.optimizer_work != "replicated":
            looked_at.add("shared_by")
        if self.algorithm in ALL_REDUCE:
            looked_at |= {"segments", "rank_order"}
        else:
            looked_at |= {"density"} if self.coordinated else {"density", "selector"}
            if SPARSE[self.algorithm].hierarchical:
                looked_at |= {"coordinated", "inside"}
        for each in fields(AllReduceOptions):
            if each.name not in looked_at and getattr(self, each.name) != each.default:
                sparse = self.algorithm in SPARSE
                causes = {"shared_by": "optimizer_work", "selector": "coordinated" if sparse else "algorithm"}
                cause = causes.get(each.name, "algorithm")
                value = str(getattr(self, cause)).lower() if cause == "coordinated" else getattr(self, cause)
                yield each.name, f"has no effect with '{cause}: {value}'", "remove it"
