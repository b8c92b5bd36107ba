"""A binary heap of (key, item) in two arrays, for Python and numba alike: see ``filling``."""

from __future__ import annotations

from testbed.simulation.layout import Array


def push(keys: Array, items: Array, size: int, key: float, item: int) -> int:
    """Add an item. Return the new size."""
    j = size
    while j > 0:
        parent = (j - 1) >> 1
        if keys[parent] <= key:
            break
        keys[j], items[j] = keys[parent], items[parent]
        j = parent
    keys[j], items[j] = key, item
    return size + 1


def pop(keys: Array, items: Array, size: int) -> int:
    """Remove the item of the smallest key. Return the new size."""
    size -= 1
    if size == 0:
        return 0
    key, item, j = keys[size], items[size], 0
    while True:
        child = 2 * j + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[j], items[j] = keys[child], items[child]
        j = child
    keys[j], items[j] = key, item
    return size
