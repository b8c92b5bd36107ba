"""Sign-SGD with error feedback (Karimireddy et al., ICML 2019): one bit per element, and one scale per tensor.

Up travels sign(p) · mean |p| of p = gradient + residual; what that leaves out is the next residual. Down: float32.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite


class SignSgd(Codec):
    """Up: ⌈n/8⌉ + 4 bytes. Down: 4 n bytes."""

    has_memory = True
    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    remembers = ("_residuals",)

    def __init__(self, options: Options, context: CodecContext) -> None:
        self._residuals: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return torch.empty(-(-tensor.numel() // 8), dtype=torch.uint8, device="meta"), torch.empty(1, device="meta")
        check_finite(wire_key, tensor)
        wanted = tensor + self._residuals.get(wire_key, 0.0)
        bits = torch.from_numpy(np.packbits((wanted > 0).numpy()))
        parts = (bits, wanted.abs().mean().reshape(1))
        self._residuals[wire_key] = wanted - self.decode(wire_key, parts, tensor.numel())
        return parts

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if len(parts) != 2 or parts[0].dtype != torch.uint8 or parts[1].dtype != torch.float32:
            raise ValueError("expected a part of bits and a scale")
        bits, scale = parts[0].reshape(-1), parts[1].reshape(-1)
        if len(bits) != -(-size // 8) or len(scale) != 1:
            raise ValueError(f"{len(bits)} bytes and {len(scale)} scales are not the signs of {size} elements")
        if bits.is_meta:
            return torch.empty(size, device="meta")
        positive = torch.from_numpy(np.unpackbits(bits.numpy(), count=size))
        return torch.where(positive.bool(), scale, -scale)
