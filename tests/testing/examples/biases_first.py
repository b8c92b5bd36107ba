"""An order that sends biases before weights, in pieces of at most 16 KB."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.policy.order.base import Order
from testbed.policy.shard.slices import Slice, sliced

ELEMENT_BYTES = 4


class BiasesFirst(Order):
    """Weights and biases alternate in models of dense and convolutional layers: odd keys are biases."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """``piece``: the largest piece of a tensor, in bytes."""

        piece: int = field(default=16_000, metadata={"help": "largest piece of a tensor", "unit": "bytes"})

    def __init__(self, options: Options) -> None:
        self._elements = max(1, options.piece // ELEMENT_BYTES)

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return sliced(slices, self._elements)

    def priority(self, key: int) -> int:
        return key % 2
