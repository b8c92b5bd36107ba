"""Broken on purpose: every element is rounded to multiples of the tensor's largest one, and said to stand alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.context import CodecContext


class NotElementwise(Codec):
    """Sends signed bytes and a scale."""

    elementwise = True
    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return torch.empty(tensor.numel(), dtype=torch.int8, device="meta"), torch.empty(1, device="meta")
        scale = tensor.abs().max().reshape(1) / 127
        return (tensor / scale).round().to(torch.int8), scale

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if len(parts) != 2 or parts[0].numel() != size or parts[0].dtype != torch.int8:
            raise ValueError(f"no payload of {size} elements")
        return parts[0].float() * parts[1]
