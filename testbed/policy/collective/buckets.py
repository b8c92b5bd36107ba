"""Gradient bucketing (PyTorch DDP: Li et al., VLDB 2020): small tensors travel together, the last layers' first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

ELEMENT_BYTES = 4


def buckets_of(sizes: Sequence[int], bucket_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Keys of each bucket, in the order in which backpropagation yields them: from the last key to the first."""
    return tuple(map(tuple, grouped(reversed(range(len(sizes))), sizes, bucket_bytes)))


def grouped(keys: Iterable[int], sizes: Sequence[int] | Mapping[int, int], limit_bytes: int) -> list[list[int]]:
    """Consecutive ``keys`` of at most ``limit_bytes`` together; a larger tensor is one alone. ``sizes``: elements."""
    groups: list[list[int]] = []
    room = 0
    for key in keys:
        size_bytes = ELEMENT_BYTES * sizes[key]
        if not groups or size_bytes > room:
            groups.append([])
            room = limit_bytes
        groups[-1].append(key)
        room -= size_bytes
    return groups
