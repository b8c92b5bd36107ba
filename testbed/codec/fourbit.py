"""Four bits an element: the nearest of sixteen bins between a tensor's smallest and largest element.

DGT's code for blocks that matter little (GeoMX's mode 3, whose own code mixes up odd and even elements and overflows
at the maximum). What the code loses is the caller's to carry on, as a residual.
"""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 16


def encode(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, two in a byte (the even element low), and the two bounds in float32. ``tensor``: flat, finite."""
    size = tensor.numel()
    if tensor.is_meta:
        return torch.empty((size + 1) // 2, dtype=torch.uint8, device="meta"), torch.empty(2, device="meta")
    values = tensor.float()
    low, high = torch.aminmax(values)
    codes = torch.zeros(size + size % 2, dtype=torch.uint8)
    if high > low:
        codes[:size] = ((values - low) * (BINS / (high - low))).floor_().clamp_(0, BINS - 1).to(torch.uint8)
    return codes[0::2] | (codes[1::2] << 4), torch.stack([low, high])


def decode(codes: Tensor, bounds: Tensor, size: int) -> Tensor:
    """The centres of the bins, ``size`` elements: nowhere off by more than half a bin, (high - low) / 32.

    Raises ``ValueError`` when the parts cannot have come from ``encode`` for this size.
    """
    if codes.dtype != torch.uint8 or codes.numel() != (size + 1) // 2 or bounds.numel() != 2:
        raise ValueError(f"{codes.numel()} bytes of codes and {bounds.numel()} bounds are not {size} elements")
    if codes.is_meta:
        return torch.empty(size, device="meta")
    low, high = bounds.float()
    both = torch.stack([codes & 0xF, codes >> 4], dim=1).reshape(-1)[:size]
    values: Tensor = (both.float() + 0.5) * ((high - low) / BINS) + low
    return values
