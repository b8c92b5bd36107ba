"""Broken on purpose: priorities are drawn, so that nodes disagree about them."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.policy.order.base import Order
from testbed.policy.shard.slices import Slice, numbered


class ByChance(Order):
    """Whole tensors in any order."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options) -> None:
        pass

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return numbered([(each.key, each.start, each.stop, each.server) for each in slices])

    def priority(self, key: int) -> int:
        return random.randrange(1 << 30)
