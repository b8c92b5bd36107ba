"""Packs small integers of a fixed number of bits into bytes. The first integer takes the highest bits."""

from __future__ import annotations

import torch
from torch import Tensor


def packed_bytes(count: int, bits: int) -> int:
    """Return how many bytes ``count`` numbers take."""
    return -(-count * bits // 8)


def packed(numbers: Tensor, bits: int) -> Tensor:
    """Pack flat integers below 2^``bits`` into uint8 [packed_bytes]; zeros fill the last byte."""
    places = torch.arange(bits - 1, -1, -1).to(numbers.device)
    ones = ((numbers.long().unsqueeze(1) >> places) & 1).flatten()
    filled = torch.nn.functional.pad(ones, (0, -len(ones) % 8)).view(-1, 8)
    weights = 1 << torch.arange(7, -1, -1).to(numbers.device)
    return (filled * weights).sum(1).to(torch.uint8)


def unpacked(octets: Tensor, bits: int, count: int) -> Tensor:
    """Return the ``count`` integers, int64, that ``packed`` has packed into ``octets``."""
    places = torch.arange(7, -1, -1).to(octets.device)
    ones = ((octets.long().unsqueeze(1) >> places) & 1).flatten()[: count * bits].view(count, bits)
    weights = 1 << torch.arange(bits - 1, -1, -1).to(octets.device)
    return (ones * weights).sum(1)
