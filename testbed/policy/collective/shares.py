"""How workers that hold the same model share the optimizer's work.

The parallel tensor operator of Shi et al. (MLSys 2021): each worker computes the norms of a share of the model, and all
gather them; or each worker also updates its share, and all gather the new values. Shares are cut by bytes. If they were
whole tensors, the worker with a large embedding would still do most of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How an optimizer's time is divided between the norms and the update, which may be shared or not: by tensors that pass
NORM_READS = 2  # value and gradient
UPDATE_READS = 4  # value, gradient and momentum are read, and the value is written; the momentum's write is not counted
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
    """Return shares that cover every element once, about equally large.

    Tensors larger than an even share are cut. Then each piece, the largest first, goes to the rank with the least load.
    """
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
