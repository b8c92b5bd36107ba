"""Keys go to servers in turn; a key larger than ``bound`` is cut evenly over all of them."""

from dataclasses import dataclass, field

from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice, evenly, numbered


class RoundRobin(Shard):
    """Key k on server k mod S."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """``bound``: tensors with at least this number of elements are cut."""

        bound: int = field(default=100_000, metadata={"help": "elements from which a tensor is cut", "min": 1})

    def __init__(self, options: Options) -> None:
        self._bound = options.bound

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        pieces: list[tuple[int, int, int, int]] = []
        for key, size in enumerate(sizes):
            if size < self._bound:
                pieces.append((key, 0, size, key % servers))
                continue
            start = 0
            for server, part in enumerate(evenly(size, servers)):
                pieces.append((key, start, start + part, server))
                start += part
        return numbered(pieces)
