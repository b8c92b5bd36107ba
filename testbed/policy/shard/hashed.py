"""GeoMX's rule: a small tensor goes whole to server ``key · 9973 mod S``, a large one is cut evenly over all.

It balances numbers of keys, not bytes (with two servers, the parity of the index decides). It is here for comparison
with the original's behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice, evenly, numbered, one_after_another

HASH_FACTOR = 9973


class Hashed(Shard):
    """Placement by hash of the key's index."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """``bound``: tensors with at least so many elements are cut over all servers."""

        bound: int = option(1_000_000, "elements from which a tensor is cut", min=1)

    def __init__(self, options: Options) -> None:
        self._bound = options.bound

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        pieces: list[tuple[int, int, int, int]] = []
        for key, size in enumerate(sizes):
            if servers > 1 and size >= self._bound:
                pieces += one_after_another(key, evenly(size, servers))
            else:
                pieces.append((key, 0, size, key * HASH_FACTOR % servers))
        return numbered(pieces)
