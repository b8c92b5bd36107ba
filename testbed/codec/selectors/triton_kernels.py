"""The two Triton kernels of ``on_device.TritonSweep``, and the functions that launch them.

``collect`` adds, stores, and writes each block's candidates, which reach the bound, to the segment of this block, in
order. ``compact`` joins the segments to one list in ascending order. The results do not depend on the order in which
blocks run, so they repeat bit by bit.
"""

# ruff: noqa: PLR0913, PLR0917 (a kernel takes its tensors one by one)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

BLOCK = 1024  # elements; 4 warps: 64 registers and 128-bit accesses on sm_90
SEGMENT = 64  # candidates that ``collect`` keeps of a block; ``compact`` reads a block with more again


@dataclass(frozen=True, slots=True)
class KernelSelection:
    """Candidates by block: positions in the block, values and counts; and the number of non-finite elements in all."""

    positions: Tensor
    values: Tensor
    counts: Tensor
    bad: Tensor


def collect(unsent: Tensor, added: Tensor, bound: Tensor) -> KernelSelection:
    """Add ``added`` to ``unsent``, and return the elements that reach ``bound`` (magnitude bits, one int32)."""
    size = unsent.numel()
    blocks = triton.cdiv(size, BLOCK)
    device = unsent.device
    found = KernelSelection(
        torch.empty(blocks * SEGMENT, dtype=torch.int32, device=device),
        torch.empty(blocks * SEGMENT, device=device),
        torch.empty(blocks, dtype=torch.int32, device=device),
        torch.zeros(1, dtype=torch.int32, device=device),
    )
    grid: Any = _collect[(blocks,)]
    grid(
        unsent,
        added,
        bound,
        found.positions,
        found.values,
        found.counts,
        found.bad,
        size,
        segment=SEGMENT,
        block=BLOCK,
        even=size % BLOCK == 0,
        num_warps=4,
    )
    return found


def cumulative_blocks(found: KernelSelection) -> Tensor:
    """Return where each block's candidates end in the joined list."""
    return torch.cumsum(found.counts, 0)


def compact(unsent: Tensor, bound: Tensor, found: KernelSelection, ends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the indices (ascending) and values of all ``count`` candidates."""
    indices = torch.empty(count, dtype=torch.int64, device=unsent.device)
    values = torch.empty(count, device=unsent.device)
    grid: Any = _compact[(found.counts.numel(),)]
    grid(
        unsent,
        bound,
        found.positions,
        found.values,
        found.counts,
        ends,
        indices,
        values,
        unsent.numel(),
        segment=SEGMENT,
        block=BLOCK,
        num_warps=4,
    )
    return indices, values


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _collect(  # type: ignore[no-untyped-def]
    unsent,
    added,
    bound,
    positions,
    values,
    counts,
    bad,
    size,
    segment: tl.constexpr,
    block: tl.constexpr,
    even: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64)
    offset = tl.arange(0, block)
    here = unsent + index * block
    there = added + index * block
    # without masks the compiler uses 128-bit accesses; masks whose bound is not a constant make them 32-bit accesses
    if even:
        number = tl.load(here + offset) + tl.load(there + offset)
        tl.store(here + offset, number)
        inside = offset < block
    else:
        inside = offset < tl.minimum(size - index * block, block).to(tl.int32)
        number = tl.load(here + offset, mask=inside, other=0.0) + tl.load(there + offset, mask=inside, other=0.0)
        tl.store(here + offset, number, mask=inside)
    bits = number.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    hit = ((bits >= tl.load(bound)) & inside).to(tl.int32)
    count = tl.sum(hit, 0)
    tl.store(counts + index, count)
    if count > 0:
        place = tl.cumsum(hit, 0) - hit
        kept = (hit > 0) & (place < segment)
        tl.store(positions + index * segment + place, offset, mask=kept)
        tl.store(values + index * segment + place, number, mask=kept)
    if tl.max(bits, 0) >= 0x7F800000:
        tl.atomic_add(bad, tl.sum((bits >= 0x7F800000).to(tl.int32), 0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _compact(  # type: ignore[no-untyped-def]
    unsent,
    bound,
    positions,
    values,
    counts,
    ends,
    indices_out,
    values_out,
    size,
    segment: tl.constexpr,
    block: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64)
    count = tl.load(counts + index)
    start = tl.load(ends + index) - count
    if count > segment:  # more than the segment holds: read the block again
        offset = tl.arange(0, block)
        inside = offset < tl.minimum(size - index * block, block).to(tl.int32)
        number = tl.load(unsent + index * block + offset, mask=inside, other=0.0)
        hit = (((number.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= tl.load(bound)) & inside).to(tl.int32)
        place = tl.cumsum(hit, 0) - hit
        tl.store(indices_out + start + place, index * block + offset, mask=hit > 0)
        tl.store(values_out + start + place, number, mask=hit > 0)
    elif count > 0:
        slot = tl.arange(0, segment)
        used = slot < count
        position = tl.load(positions + index * segment + slot, mask=used, other=0)
        tl.store(indices_out + start + slot, index * block + position, mask=used)
        tl.store(values_out + start + slot, tl.load(values + index * segment + slot, mask=used, other=0.0), mask=used)
