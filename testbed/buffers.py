"""Reuses the memory of large, short-lived tensors (of one message or one sum), so that the kernel need not clear pages.

The kernel clears every page before it gives it to a process, which takes longer than copying into the page. The C
library's allocator keeps freed memory, too, but small objects between large blocks fragment it, so the heap grows. Here
a block belongs to a size class, and returns to it when the last tensor that shares the block is freed.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

POOLED_BYTES = 1 << 20  # smaller tensors come from torch's allocator
KEPT_BYTES = 1 << 30  # the most bytes of unused blocks that a process keeps
KEPT_S = 10.0  # how long an unused block is kept
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class BufferPool:
    """Memory blocks of large tensors; any thread may use it.

    kept_bytes  the most bytes of all unused blocks together
    clock       returns the time in s

    A tensor may be freed in the middle of any method, even while this thread holds the lock. So returning a block needs
    no lock: it consists of atomic operations on a queue and a dictionary.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_bytes = kept_bytes
        self._clock = clock
        self._returned: deque[tuple[mmap.mmap, float]] = deque()  # blocks, each with the time when it came back
        self._unused: dict[int, list[tuple[mmap.mmap, float]]] = {}  # the same, sorted into size classes, latest last
        self._lent: dict[int, weakref.ref[np.ndarray]] = {}  # a weak reference must live for its callback to be called
        self.begin_process()

    def begin_process(self) -> None:
        """Replace the lock: at a fork, another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor in main memory, not initialised."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < POOLED_BYTES:
            return torch.empty(tuple(shape), dtype=dtype)
        size_class = class_of(size_bytes)
        with self._lock:
            self._sort()
            fitting = self._unused.get(size_class)
            block = fitting.pop()[0] if fitting else None
        if block is None:
            block = _new_block(size_class)
        return self._lend(block, size_bytes).view(dtype).view(tuple(shape))

    def _lend(self, block: mmap.mmap, size_bytes: int) -> Tensor:
        # the storage of the tensor keeps the array alive, until the last tensor that shares it is freed
        array = np.frombuffer(block, np.uint8, size_bytes)
        number = id(array)

        def give_back(_: weakref.ref[np.ndarray]) -> None:
            self._returned.append((block, self._clock()))
            self._lent.pop(number, None)

        self._lent[number] = weakref.ref(array, give_back)
        return torch.from_numpy(array)

    def _sort(self) -> None:
        """Sort returned blocks into their classes; free blocks above the limit, and those unused for too long."""
        while self._returned:
            block, since_s = self._returned.popleft()
            self._unused.setdefault(len(block), []).append((block, since_s))
        kept_bytes = 0
        oldest_s = self._clock() - KEPT_S
        for size_class, blocks in self._unused.items():
            while blocks and (blocks[0][1] < oldest_s or kept_bytes + size_class * len(blocks) > self._kept_bytes):
                del blocks[0]  # unmapped when its last array is gone
            kept_bytes += size_class * len(blocks)


def class_of(size_bytes: int) -> int:
    """Return the size of the smallest block for ``size_bytes`` bytes; there are four sizes for each power of two."""
    step = 1 << max(0, (size_bytes - 1).bit_length() - 3)
    return -(-size_bytes // step) * step


def _new_block(size_bytes: int) -> mmap.mmap:
    block = mmap.mmap(-1, size_bytes, flags=_PRIVATE)
    with suppress(OSError):  # some kernels have no huge pages, such as that of exact runs
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


_pool = BufferPool()
os.register_at_fork(after_in_child=_pool.begin_process)


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a tensor of this process's pool, not initialised."""
    return _pool.empty(shape, dtype)


def empty_like(tensor: Tensor) -> Tensor:
    """Return a tensor of this shape, type and device, not initialised; in main memory it comes from the pool."""
    if tensor.device.type == "cpu":
        return _pool.empty(tensor.shape, tensor.dtype)
    # not ``torch.empty_like``, which imports sympy for the first meta tensor: a third of a second
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def clone(tensor: Tensor) -> Tensor:
    return empty_like(tensor).copy_(tensor)


def computed(operation: Callable[..., Tensor], one: Tensor, other: Tensor | float) -> Tensor:
    """Return the result of an elementwise operation of torch. ``other``: a number, or a tensor like ``one``."""
    # nothing is computed with meta tensors: torch's operations on them import its compiler and sympy, 1.3 s
    return empty_like(one) if one.is_meta else operation(one, other, out=empty_like(one))


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return the concatenation of flat tensors of one type, in new memory."""
    if tensors[0].is_meta:
        return torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device="meta")
    if tensors[0].device.type != "cpu":
        return torch.cat(list(tensors))
    total = empty((sum(tensor.numel() for tensor in tensors),), tensors[0].dtype)
    return torch.cat(list(tensors), out=total)
