"""Sweeps over tensors in blocks that stay in a level-2 cache, so that the steps of a codec read the memory once."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 1 << 17  # elements: 512 KiB of float32


def blocks(size: int) -> Iterator[slice]:
    """Yield the slices that a sweep over ``size`` elements goes through; each begins at a multiple of ``BLOCK``."""
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))
