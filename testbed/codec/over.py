"""A wrapper around a codec. Subclasses override some methods; all others are passed on to the wrapped codec."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import ClassVar

from torch import Tensor

from testbed.codec.base import Codec
from testbed.costs import Cost
from testbed.key_shape import KeyShape


class CodecOver(Codec):
    """One end of a connection that wraps ``codec``. Its row in the table of measured costs is that of ``codec``."""

    remembers: ClassVar[tuple[str, ...]] = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def _for(self, size: int) -> Codec:
        """Return the codec for tensors of ``size`` elements."""
        return self._codec

    @property
    def cost_name(self) -> str:
        return self._codec.cost_name

    @cost_name.setter
    def cost_name(self, name: str) -> None:
        self._codec.cost_name = name

    @property
    def outside(self) -> str:
        return self._codec.outside

    @outside.setter
    def outside(self, kind: str) -> None:
        self._codec.outside = kind

    def cost(self, operation: str, size: int) -> Cost | None:
        return self._for(size).cost(operation, size)

    def adjust(self, share: float) -> None:
        self._codec.adjust(share)

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        self._for(prod(shape.dimensions)).declare(wire_key, shape)

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._for(value.numel()).begin(wire_key, value)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return self._for(tensor.numel()).encode(wire_key, tensor)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._for(size).decode(wire_key, parts, size)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self._for(value.numel()).encode_value(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._for(size).decode_value(wire_key, parts, size)

    def value_state(self, wire_key: int, size: int) -> Hashable:
        return self._for(size).value_state(wire_key, size)

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        self._for(value.numel()).follow_value(wire_key, value, parts)
