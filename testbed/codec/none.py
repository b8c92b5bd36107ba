"""float32 as it is: four bytes an element, up and down."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.codec.dense import part
from testbed.codec.options import NoneOptions


class NoneCodec:
    """Sends the tensor itself."""

    def __init__(self, options: NoneOptions) -> None:
        pass

    def begin(self, wire_key: int, value: Tensor) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.contiguous(),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    encode_value = encode
    decode_value = decode

    def encoded_bytes(self, size: int) -> int:
        return 4 * size

    value_bytes = encoded_bytes
