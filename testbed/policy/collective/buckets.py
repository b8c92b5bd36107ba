"""Gradient bucketing (PyTorch DDP: Li et al., VLDB 2020): small tensors travel together, the last layers' first."""

from __future__ import annotations

from collections.abc import Sequence


def buckets_of(sizes: Sequence[int], bucket_bytes: int, element_bytes: int = 4) -> tuple[tuple[int, ...], ...]:
    """Keys of each bucket, in the order in which backpropagation yields them: from the last key to the first.

    A bucket is closed when the next tensor would make it larger than ``bucket_bytes``; a larger tensor is one alone.
    """
    buckets: list[list[int]] = []
    room = 0
    for key in reversed(range(len(sizes))):
        size_bytes = sizes[key] * element_bytes
        if not buckets or size_bytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(key)
        room -= size_bytes
    return tuple(tuple(bucket) for bucket in buckets)
