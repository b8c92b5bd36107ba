"""float32 as it is: four bytes an element, up and down."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.dense import part
from testbed.codec.options import NoneOptions


class NoneCodec(Codec):
    """Sends the tensor itself."""

    def __init__(self, options: NoneOptions) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.contiguous(),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self.encode(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self.decode(wire_key, parts, size)

    def encoded_bytes(self, size: int) -> int:
        return 4 * size

    def value_bytes(self, size: int) -> int:
        return self.encoded_bytes(size)
