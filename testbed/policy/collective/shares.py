"""Optimizer work shared by workers that hold the same model: who does what, and when it pays (pure).

The parallel tensor operator of Shi et al. (MLSys 2021): each worker takes norms of a share of the tensors, and all
gather them; or each also updates its share, and all gather the new values. Shares are cut by bytes: by tensors, the one
with an embedding of most of the model would be as slow as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.policy.collective.predict import LinkCost

VALUE_BYTES = 4
NORM_BYTES = 8  # a sum of squares, in double precision
NORM_READS = 2  # value and gradient
UPDATE_READS = 4  # value, gradient and momentum are read, and value and momentum written; Adam's moments alike
KINDS = ("replicated", "norms", "update")


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements ``start`` to ``stop`` of a key."""

    key: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


Shares = tuple[tuple[Piece, ...], ...]  # of each rank, in the order of keys


def shares_of(sizes: Sequence[int], ranks: int) -> Shares:
    """Every element once: tensors larger than an even share are cut, then the largest piece to the least laden rank."""
    even = max(1, -(-sum(sizes) // ranks))
    pieces = [
        Piece(key, start, min(start + even, size)) for key, size in enumerate(sizes) for start in range(0, size, even)
    ]
    loads = [0] * ranks
    mine: list[list[Piece]] = [[] for _ in range(ranks)]
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.key, piece.start)):
        rank = loads.index(min(loads))
        mine[rank].append(piece)
        loads[rank] += piece.size
    return tuple(tuple(sorted(share, key=lambda piece: (piece.key, piece.start))) for share in mine)


def work_bytes(sizes: Sequence[int], ranks: int, kind: str, *, norms: bool) -> int:
    """Memory that the busiest rank reads and writes in one step. ``norms``: the optimizer takes any (LARS)."""
    whole = VALUE_BYTES * sum(sizes)
    share = VALUE_BYTES * max(sum(piece.size for piece in pieces) for pieces in shares_of(sizes, ranks))
    of_norms = NORM_READS * (whole if kind == "replicated" else share) if norms else 0
    return of_norms + UPDATE_READS * (share if kind == "update" else whole)


def gather_s(sizes: Sequence[int], ranks: int, kind: str, link: LinkCost, *, norms: bool) -> float:
    """Time to gather norms, and new values, around a ring."""
    if kind == "replicated" or ranks == 1:
        return 0.0
    messages = (ranks - 1) * link.copy_s(2 * NORM_BYTES * len(sizes)) if norms else 0.0
    values = (ranks - 1) * link.copy_s(VALUE_BYTES * sum(sizes) / ranks) if kind == "update" else 0.0
    return messages + values


def saved_s(
    sizes: Sequence[int], ranks: int, kind: str, link: LinkCost, memory_bytes_per_s: float, *, norms: bool
) -> float:
    """What a step gains by being shared; negative where it loses."""
    alone = work_bytes(sizes, ranks, "replicated", norms=norms)
    shared = work_bytes(sizes, ranks, kind, norms=norms)
    return (alone - shared) / memory_bytes_per_s - gather_s(sizes, ranks, kind, link, norms=norms)
