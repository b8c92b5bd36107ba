"""Sparse payloads: values (float32) and their indices (int32, strictly increasing), in two parts of equal length.

GeoMX sends indices as float32, which is wrong from 2²⁴ elements on, and fills unused slots with −65530 and −1. Here
indices are integers, and a payload has only as many slots as entries. If ``words`` is given, a third part fills the
payload up to this number of 32-bit words, GeoMX's fixed length, so that byte counts equal GeoMX's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed import buffers

ROUNDING = 1e-9  # so that 0.29 of 100 elements are 29, although 0.29·100 is a little less in float64


def entries(size: int, ratio: float) -> int:
    """Return the number of entries to send: ⌊ratio·size⌋, but at least one."""
    return max(1, int(size * ratio + ROUNDING))


def words(size: int, ratio: float) -> int:
    """Return the 32-bit words of GeoMX's payload for that ratio: ⌊2·ratio·size⌋; if odd, the last one is unused."""
    return max(2 * entries(size, ratio), int(2 * size * ratio + ROUNDING))


def pack(indices: Tensor, values: Tensor, words: int | None = None) -> tuple[Tensor, ...]:
    """Return the payload of ``values`` at ``indices`` (ascending)."""
    parts = (values, indices.to(torch.int32))
    return (
        parts
        if words is None
        else (*parts, torch.zeros(words - 2 * values.numel(), dtype=torch.int32, device=values.device))
    )


def shapes(count: int, words: int | None = None) -> tuple[Tensor, ...]:
    """Return a payload of ``count`` entries without numbers, for runs that only count bytes."""
    parts = (torch.empty(count, device="meta"), torch.empty(count, dtype=torch.int32, device="meta"))
    return parts if words is None else (*parts, torch.empty(words - 2 * count, dtype=torch.int32, device="meta"))


def unpack(parts: tuple[Tensor, ...], size: int, most: int, words: int | None = None) -> tuple[Tensor, Tensor]:
    """Return indices and values. Raise ``ValueError`` for malformed parts, or for more than ``most`` entries."""
    if len(parts) != (2 if words is None else 3):
        raise ValueError(f"expected {2 if words is None else 3} parts, got {len(parts)}")
    values = parts[0]
    indices = parts[1]
    if values.dtype != torch.float32 or indices.dtype != torch.int32:
        raise ValueError(f"expected float32 values and int32 indices, got {values.dtype} and {indices.dtype}")
    if values.dim() != 1 or values.shape != indices.shape:
        raise ValueError(f"values {tuple(values.shape)} and indices {tuple(indices.shape)} are not one list each")
    if values.numel() > most:
        raise ValueError(f"{values.numel()} entries, at most {most} were expected")
    length = 0 if words is None else words - 2 * values.numel()
    if words is not None and (parts[2].dtype != torch.int32 or tuple(parts[2].shape) != (length,)):
        raise ValueError(f"expected {length} words of filler, got {parts[2].dtype} {tuple(parts[2].shape)}")
    check_indices(indices, size)
    return indices, values


def scatter(indices: Tensor, values: Tensor, size: int) -> Tensor:
    """Return a dense tensor of ``size`` elements with ``values`` at ``indices`` and zeros elsewhere."""
    if values.is_meta:
        return torch.empty(size, device="meta")
    tensor = buffers.empty((size,), torch.float32) if values.is_cpu else torch.empty(size, device=values.device)
    return tensor.zero_().index_copy_(0, indices.long(), values)


def check_indices(indices: Tensor, size: int) -> None:
    """Raise ``ValueError`` unless the indices increase strictly and lie within ``size`` elements."""
    if indices.is_meta or not indices.numel():
        return
    if int(indices[0]) < 0 or int(indices[-1]) >= size:
        raise ValueError(f"indices from {int(indices[0])} to {int(indices[-1])} are outside of {size} elements")
    if not bool((indices[1:] > indices[:-1]).all()):
        raise ValueError("indices do not increase strictly")
