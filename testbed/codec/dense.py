"""One float32 part, as it is: what sparse codecs send for small keys, and some of them in pull direction."""

from __future__ import annotations

import torch
from torch import Tensor


def part(parts: tuple[Tensor, ...], dtype: torch.dtype, size: int) -> Tensor:
    """The only part, flat. Raises ``ValueError`` unless it is one, of this dtype, with ``size`` elements."""
    if len(parts) != 1:
        raise ValueError(f"expected 1 part, got {len(parts)}")
    (tensor,) = parts
    if tensor.dtype != dtype or tensor.numel() != size:
        raise ValueError(f"expected {size} elements of {dtype}, got {tensor.numel()} of {tensor.dtype}")
    return tensor if tensor.dim() == 1 else tensor.reshape(size)


class Dense:
    """A payload of one float32 part."""

    def encode(self, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.contiguous(),)

    def decode(self, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def bytes(self, size: int) -> int:
        return 4 * size
