"""MultiGPS balanced by bytes: all global servers hold, and so send and receive, the same number of bytes.

GeoMX places a key by its index alone (``hashed``): of two servers, one gets 99.75 % of GeoMX's demo network. Here the
small tensors are placed first, from the largest to the smallest, each as a whole at the server that holds least. Then
each large tensor is cut into pieces for the servers. The option ``rule`` says where:

balanced   a large tensor first fills up the servers that hold less than the others, so that all end equally full
even       a tensor of n elements is cut at round(n·i/S) for S servers, as parameter servers with a bound do (ps-lite;
           Li et al., OSDI 2014)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice, evenly, numbered, one_after_another
from testbed.preset import Preset


class MultiGps(Shard):
    """Tensors are placed by their size."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="multigps",
            summary="several global servers hold equal parts of the model (topology: global_servers, 2 or more)",
            source="GeoMX",
            settings={"shard": {}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``bound``: tensors with at least this many elements may be cut."""

        bound: int = option(10_000, "elements from which a tensor is cut", min=1)
        rule: str = option(
            "balanced",
            "balanced: cuts of large tensors give all servers equal loads; even: each is cut into equal parts",
            choices=("balanced", "even"),
        )

    def __init__(self, options: Options) -> None:
        self._bound = options.bound
        self._rule = options.rule

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        small = [key for key, size in enumerate(sizes) if size < self._bound or servers == 1]
        levels = [0] * servers
        pieces: list[tuple[int, int, int, int]] = []
        for key in sorted(small, key=lambda key: (-sizes[key], key)):
            server = levels.index(min(levels))
            levels[server] += sizes[key]
            pieces.append((key, 0, sizes[key], server))
        for key in sorted(set(range(len(sizes))) - set(small)):
            pieces += self._cut(key, sizes[key], levels)
        return numbered(sorted(pieces))

    def _cut(self, key: int, size: int, levels: list[int]) -> list[tuple[int, int, int, int]]:
        """Return the pieces of one large tensor, in the order of servers, and add their sizes to ``levels``."""
        parts = filling(levels, size) if self._rule == "balanced" else evenly(size, len(levels))
        levels[:] = map(operator.add, levels, parts)
        return one_after_another(key, parts)


def filling(levels: Sequence[int], size: int) -> list[int]:
    """Split ``size`` into parts that fill up ``levels``, the lowest first. Filled levels then differ by at most 1."""
    order = sorted(range(len(levels)), key=lambda index: (levels[index], index))
    used = len(order)
    total = size + sum(levels)
    while levels[order[used - 1]] * used > total:  # the highest used level is above what all would reach
        used -= 1
        total -= levels[order[used]]
    level, over = divmod(total, used)
    parts = [0] * len(levels)
    for place, index in enumerate(order[:used]):
        parts[index] = level + (place < over) - levels[index]
    return parts
