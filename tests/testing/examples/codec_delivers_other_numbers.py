"""Broken on purpose: what arrives is not what was sent, though sizes and types are right."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.base import Codec, part
from testbed.codec.context import CodecContext


class Halves(Codec):
    """float16, as it should be."""

    size_only = True
    elementwise = True
    factor = 1.0

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.to(torch.float16),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self.factor * part(parts, torch.float16, size).to(torch.float32)


class WrongSign(Halves):
    """Trains away from the minimum."""

    factor = -1.0


class Zeros(Halves):
    """Trains nothing."""

    factor = 0.0


class Thousandths(Halves):
    """Forgets the scale."""

    factor = 1e-3


class Twofold(Halves):
    """Doubles the learning rate."""

    factor = 2.0


class ZerosAsValues(Halves):
    """Every worker's model becomes 0."""

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return torch.zeros_like(part(parts, torch.float32, size))


class NotExact(Halves):
    """Says that float16 has float32's bits."""

    exact = True
