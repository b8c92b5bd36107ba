"""The common part of all sparse codecs: large keys are sparse, small ones dense and exact."""

from __future__ import annotations

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.dense import Dense
from testbed.codec.pull import Pull
from testbed.codec.push import SparsePush


def is_large(size: int, bound: int) -> bool:
    """The one rule, at both ends and on both tiers, that tells large keys from small ones."""
    return size >= bound


class SparseCodec(Codec):
    """Keys with at least ``bound`` elements travel by ``push`` and ``pull``."""

    def __init__(self, bound: int, push: SparsePush, pull: Pull) -> None:
        self._bound, self._push, self._pull, self._dense = bound, push, pull, Dense()

    def begin(self, wire_key: int, value: Tensor) -> None:
        if is_large(value.numel(), self._bound):
            self._pull.begin(wire_key, value)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        large = is_large(tensor.numel(), self._bound)
        return self._push.encode(wire_key, tensor) if large else self._dense.encode(tensor)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        large = is_large(size, self._bound)
        return self._push.decode(parts, size) if large else self._dense.decode(parts, size)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        large = is_large(value.numel(), self._bound)
        return self._pull.encode(wire_key, value) if large else self._dense.encode(value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        large = is_large(size, self._bound)
        return self._pull.decode(wire_key, parts, size) if large else self._dense.decode(parts, size)

    def encoded_bytes(self, size: int) -> int:
        return self._push.bytes(size) if is_large(size, self._bound) else self._dense.bytes(size)

    def value_bytes(self, size: int) -> int:
        return self._pull.bytes(size) if is_large(size, self._bound) else self._dense.bytes(size)

    def unsent(self, wire_key: int) -> Tensor:
        """Return what this end has not sent of a large key yet; for tests and analysis."""
        return self._push.unsent(wire_key)
