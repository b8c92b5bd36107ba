"""Broken on purpose: every call begins with the server after the last one, so that nodes disagree."""

from dataclasses import dataclass

from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice, numbered


class Remembers(Shard):
    """Whole tensors in turn."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options) -> None:
        self._turn = 0

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        pieces = []
        for key, size in enumerate(sizes):
            self._turn += 1
            pieces.append((key, 0, size, self._turn % servers))
        return numbered(pieces)
