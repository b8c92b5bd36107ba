"""float16 on the wire, both ways; every sum stays in float32. Half the bytes of ``none``.

GeoMX casts in the application and sums in float16 on both tiers; here only the transport is narrow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed import buffers
from testbed.codec.base import Codec, part
from testbed.codec.errors import OutsideHalfPrecision, check_finite
from testbed.codec.options import Fp16Options

ROUNDS_TO_INFINITY = 65_520.0  # the first magnitude that float16 rounds to infinity; its largest number is 65504


class Fp16Codec(Codec):
    """Casts to the nearest float16 and back."""

    cost_name = "fp16"

    def __init__(self, options: Fp16Options) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Raises ``NonFiniteNumbers`` or ``OutsideHalfPrecision`` rather than send an infinity."""
        _check_range(wire_key, tensor)
        return (_converted(tensor, torch.float16),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return _converted(part(parts, torch.float16, size), torch.float32)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self.encode(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self.decode(wire_key, parts, size)


def _converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.is_cpu:
        return buffers.empty(tensor.shape, dtype).copy_(tensor)
    return torch.empty(tensor.shape, dtype=dtype, device=tensor.device).copy_(tensor)


def _check_range(wire_key: int, tensor: Tensor) -> None:
    if tensor.is_meta or not tensor.numel():
        return
    low, high = (float(bound) for bound in torch.aminmax(tensor))  # NaN comes through as NaN
    if low > -ROUNDS_TO_INFINITY and high < ROUNDS_TO_INFINITY:
        return
    check_finite(wire_key, tensor, "tensor")
    outside = int((tensor.abs() >= ROUNDS_TO_INFINITY).sum())
    raise OutsideHalfPrecision(wire_key, outside, max(-low, high))
