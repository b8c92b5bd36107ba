"""Broken on purpose: the two halves of a large tensor share an element."""

from dataclasses import dataclass

from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice, numbered


class Overlaps(Shard):
    """Halves of large tensors on the first and the last server."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options) -> None:
        pass

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        pieces: list[tuple[int, int, int, int]] = []
        for key, size in enumerate(sizes):
            half = size // 2
            pieces += [(key, 0, half + 1, 0), (key, half, size, servers - 1)] if size > 1000 else [(key, 0, size, 0)]
        return numbered(pieces)
