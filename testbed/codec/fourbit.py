"""Four bits an element: the nearest of sixteen bins between a tensor's smallest and largest element.

DGT encodes its less important blocks in this way (mode 3 of GeoMX, whose implementation mixes up odd and even elements
and overflows at the maximum). The caller keeps the quantisation error as a residual.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from testbed.codec.blocks import BLOCK, blocks

BINS = 16
_SMALL = 2.0**-64


def encode(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Encode a flat, finite tensor.

    Return the codes, uint8, two in a byte (that of the even element in the low bits), and the smallest and the largest
    element, float32 [2].
    """
    size = tensor.numel()
    if tensor.is_meta:
        return torch.empty((size + 1) // 2, dtype=torch.uint8, device="meta"), torch.empty(2, device="meta")
    values = tensor.float()
    low, high = torch.aminmax(values)
    least = low
    most = high
    packed = torch.zeros((size + 1) // 2, dtype=torch.uint8)
    if high > low:
        if most - least == torch.inf:  # the range itself exceeds float32: halve values and bounds
            values = values / 2
            least = low / 2
            most = high / 2
        elif most - least < _SMALL:  # 16 / range exceeds float32
            values = values / _SMALL
            least = low / _SMALL
            most = high / _SMALL
        scale = BINS / (most - least)
        shifted = torch.empty(BLOCK)
        codes = torch.zeros(BLOCK, dtype=torch.int32)
        pairs = codes.numpy().view(np.int64)  # the even element is the low half
        for block in blocks(size):
            count = block.stop - block.start
            codes[:count] = torch.sub(values[block], least, out=shifted[:count]).mul_(scale).clamp_(0, BINS - 1)
            codes[count : count + count % 2] = 0
            both = pairs[: (count + 1) // 2]
            packed.numpy()[block.start // 2 : (block.stop + 1) // 2] = both & 0xF | both >> 28 & 0xF0
    return packed, torch.stack([low, high])


def decode(codes: Tensor, bounds: Tensor, size: int) -> Tensor:
    """Return the bin centre of each of ``size`` elements. The error is at most half a bin, (high - low) / 32.

    Raise ``ValueError`` when the parts cannot have come from ``encode`` for this size.
    """
    if codes.dtype != torch.uint8 or codes.numel() != (size + 1) // 2 or bounds.numel() != 2:
        raise ValueError(f"{codes.numel()} bytes of codes and {bounds.numel()} bounds are not {size} elements")
    if codes.is_meta:
        return torch.empty(size, device="meta")
    low, high = bounds.float()
    places = torch.arange(BINS).float() + 0.5
    if high - low < _SMALL:  # 1/16 of the range may be below float32's smallest number
        centres = (places * (high - low) / BINS + low).numpy()
    elif high - low < torch.inf:
        centres = (places * ((high - low) / BINS) + low).numpy()
    else:  # a range beyond float32's largest number
        centres = (high * (places / BINS) + low * (1 - places / BINS)).numpy()
    every = np.arange(256)
    numbers = np.stack([centres[every & 0xF], centres[every >> 4]], axis=1).view(np.int64).reshape(-1)
    values = np.empty((codes.numel(), 2), np.float32)
    pairs = values.view(np.int64).reshape(-1)  # np.take copies two float32 as one 8-byte integer
    for block in blocks(codes.numel()):
        np.take(numbers, codes.numpy()[block], out=pairs[block], mode="clip")
    return torch.from_numpy(values.reshape(-1)[:size])
