"""Broken on purpose: the last slice of every cut is missing."""

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.policy.order.base import Order
from testbed.policy.shard.slices import Slice, sliced


class DropsASlice(Order):
    """Pieces of 1000 elements, but one."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options) -> None:
        pass

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return sliced(slices, 1000)[:-1]

    def priority(self, key: int) -> int:
        return 0
