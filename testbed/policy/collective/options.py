"""Options of paradigms that sum over workers: by this project's algorithms or, to compare with them, by a library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from testbed.axes import option
from testbed.policy.collective import ALL_REDUCE, SELECTORS, SPARSE
from testbed.policy.collective.shares import KINDS as SHARED_WORK

BUCKETS = "buckets"
AFTERWARDS = "after"
_OVERLAP: dict[str, Any] = {
    "help": "buckets: sum a bucket when the backward pass has made it, as PyTorch's DistributedDataParallel does; "
    "after: after the whole backward pass",
    "choices": (AFTERWARDS, BUCKETS),
}
AUTO = -1
_BUCKET: dict[str, Any] = {
    "help": "bytes of gradients that are summed together; auto: 25 MB as in PyTorch's DistributedDataParallel, or a "
    "32nd of a model above 800 MB",
    "unit": "bytes",
    "min": 0,
    "words": {"auto": AUTO},
}
_BUCKET_BYTES = 25_000_000
_AUTO_BUCKETS = 32  # of a large model, about: more would not hide more delay of a WAN, and each costs messages


def bucket_bytes(chosen: int, model_bytes: int) -> int:
    """Return the bucket size in bytes: as ``chosen`` by the option, or chosen for ``model_bytes`` (as float32)."""
    return max(_BUCKET_BYTES, model_bytes // _AUTO_BUCKETS) if chosen == AUTO else chosen


SERVERS = "servers"  # option of ``hips``: the local server sums, not the workers themselves


@dataclass(frozen=True, slots=True)
class Inside:
    """How the workers of a data centre sum among themselves.

    ``library``: a library sums, over its own connections. ``on_gpu``: it sums on the workers' GPUs, over their links.
    """

    library: bool = False
    on_gpu: bool = False


INSIDE = {"ring": Inside(), "gloo": Inside(library=True), "nccl": Inside(library=True, on_gpu=True)}
"""By this project's ring, or by a library."""


def inside_of(options: Mapping[str, Any]) -> Inside | None:
    """Return how workers sum inside, by the options of a paradigm; ``None`` if they do not."""
    return INSIDE.get(options.get("inside", SERVERS))


@dataclass(frozen=True, slots=True)
class AllReduceOptions:
    """Data-parallel training without servers: gradients are summed over the workers, each applies the same step."""

    algorithm: str = option("ring", "how gradients are summed", choices=(*ALL_REDUCE, *SPARSE))
    bucket: int = option(AUTO, **_BUCKET)
    overlap: str = option(AFTERWARDS, **_OVERLAP)
    segments: int = option(
        0,
        "pieces of each chunk, sent one after another so that hops overlap; 0: pieces of 16 KB across data centres, at "
        "most 8",
        max=64,
    )
    density: float = option(0.01, "share of elements that hitopk and flat_topk send", unit="share")
    selector: str = option(
        "published",
        "which elements hitopk and flat_topk send. published: about the largest, by MSTopK's bisection for a "
        "threshold; exact: the largest; random: any",
        choices=tuple(SELECTORS),
    )
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
        """Yield options that differ from their default but have no effect with the chosen algorithm."""
        looked_at = {"algorithm", "bucket", "overlap", "optimizer_work"}
        if self.optimizer_work != "replicated":
            looked_at.add("shared_by")
        if self.algorithm in ALL_REDUCE:
            looked_at.add("segments")
        else:
            looked_at |= {"density", "selector"}
            if SPARSE[self.algorithm].hierarchical:
                looked_at.add("inside")
        for each in fields(AllReduceOptions):
            if each.name not in looked_at and getattr(self, each.name) != each.default:
                cause = "optimizer_work" if each.name == "shared_by" else "algorithm"
                yield each.name, f"has no effect with '{cause}: {getattr(self, cause)}'", "remove it"


NCCL = "nccl"
BACKENDS = ("gloo", NCCL)


@dataclass(frozen=True, slots=True)
class GlooOptions:
    """Data-parallel training on torch.distributed: the same workers, hosts and links, its own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (Gloo's headers included), as the kernel counts them.
    """

    backend: str = option("gloo", "gloo: on the CPU, over TCP. nccl: one GPU per worker", choices=BACKENDS)
    bucket: int = option(AUTO, **_BUCKET)
    overlap: str = option(AFTERWARDS, **_OVERLAP)
