"""Memory of large tensors is reused once no tensor refers to it, and is bounded; the garbage collector around runs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

from testbed import buffers
from testbed.buffers import KEPT_S, POOLED_BYTES, BufferPool, class_of
from testbed.garbage import collect_after_fork, collect_garbage

ELEMENTS = POOLED_BYTES  # four bytes each


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def unused_bytes(pool: BufferPool) -> int:
    """Bytes of blocks that wait for their next use."""
    with pool._lock:
        pool._sort()
        return sum(size * len(blocks) for size, blocks in pool._unused.items())


def test_a_kernel_without_huge_pages_gives_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of exact runs does, which refuses the advice."""
    monkeypatch.setattr("mmap.MADV_HUGEPAGE", 9999)
    tensor = BufferPool().empty((ELEMENTS,), torch.float32)
    assert tensor.fill_(3).sum() == 3 * ELEMENTS


def test_memory_comes_back_with_the_last_tensor_that_shares_it() -> None:
    pool = BufferPool()
    tensor = pool.empty((ELEMENTS,), torch.float32)
    where, view = tensor.data_ptr(), tensor[5:9].view(2, 2)
    view.fill_(7)
    del tensor
    other = pool.empty((ELEMENTS,), torch.float32)
    assert other.data_ptr() != where, "a view still holds it"
    other.fill_(1)
    assert view.tolist() == [[7, 7], [7, 7]]
    del view
    assert unused_bytes(pool) == 4 * ELEMENTS
    again = pool.empty((2, ELEMENTS), torch.float16)
    assert again.data_ptr() == where, "of any type and shape of that size"
    assert unused_bytes(pool) == 0


def test_unused_memory_is_bounded_and_given_back_after_a_while() -> None:
    clock = Clock()
    pool = BufferPool(kept_bytes=3 * 4 * ELEMENTS, clock=clock)
    tensors = [pool.empty((ELEMENTS,), torch.float32) for _ in range(5)]
    clock.now_s = 1.0
    tensors.clear()
    assert unused_bytes(pool) == 3 * 4 * ELEMENTS
    clock.now_s += KEPT_S / 2
    again = pool.empty((ELEMENTS,), torch.float32)
    del again
    clock.now_s += KEPT_S * 0.6
    assert unused_bytes(pool) == 4 * ELEMENTS, "blocks unused for that long are returned to the kernel"
    clock.now_s += KEPT_S
    assert unused_bytes(pool) == 0


def test_threads_never_share_memory() -> None:
    pool, wrong = BufferPool(), []

    def work(number: int) -> None:
        for turn in range(60):
            tensor = pool.empty((ELEMENTS // 4 + 1,), torch.float32).fill_(number)
            tensor[turn] = number
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert unused_bytes(pool) <= 2 * 4 * class_of(ELEMENTS + 4), "each thread holds one, and the one before"


def test_a_forked_process_writes_to_memory_of_its_own() -> None:
    tensor = buffers.empty((ELEMENTS,), torch.float32).fill_(1)
    child = os.fork()
    if not child:
        tensor.fill_(2)
        os._exit(0 if bool((buffers.clone(tensor) == 2).all()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bool((tensor == 1).all())


def test_sums_copies_and_joined_tensors_have_torchs_bits() -> None:
    one, other = torch.randn(ELEMENTS), torch.randn(ELEMENTS)
    assert torch.equal(buffers.computed(torch.add, one, other), one + other)
    assert torch.equal(buffers.joined([one, other[:3]]), torch.cat([one, other[:3]]))
    assert torch.equal(buffers.clone(one.view(2, -1)), one.view(2, -1))
    assert buffers.clone(one).data_ptr() != one.data_ptr()
    meta = torch.empty(ELEMENTS, device="meta")
    assert buffers.empty_like(meta).is_meta


ROOT = Path(__file__).parents[2]


MANY_RUNS = """
import gc, weakref
from testbed.garbage import frozen_garbage, relaxed_garbage_collection

class Left:
    def __init__(self):
        self.itself = self  # only the collector finds it

left = weakref.WeakSet()
with frozen_garbage():
    size = gc.get_freeze_count() // 20
for _ in range(6):  # each adds a twentieth of the objects that there were, and a tenth more are looked for
    with relaxed_garbage_collection():
        left.update(Left() for _ in range(size))
assert 0 < len(left) < 4 * size, (len(left), size)
"""


def test_what_many_runs_leave_in_cycles_is_collected() -> None:
    """In a process of few objects: this one has millions, and to look at them once takes a second."""
    subprocess.run([sys.executable, "-c", MANY_RUNS], cwd=ROOT, check=True, timeout=240)


def test_garbage_of_the_parent_closes_no_file_of_a_forked_process() -> None:
    with tempfile.TemporaryFile() as other:
        gc.disable()
        try:
            held = os.open(os.devnull, os.O_RDONLY)
            cycle: list[object] = [os.fdopen(held)]
            cycle.append(cycle)  # garbage that only the collector finds
            del cycle
            child = os.fork()
            if child == 0:
                _end_with(other.fileno(), held)
        finally:
            gc.enable()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gc.collect()


def _end_with(other: int, descriptor: int) -> None:
    """Exit with 0 if the collector leaves a descriptor that this process uses for another file."""
    status = 1
    try:
        os.dup2(other, descriptor)
        collect_after_fork()
        gc.collect()
        os.fstat(descriptor)
        status = 0
    finally:
        os._exit(status)


class Interrupting:
    """In a cycle; Ctrl-C comes while it is finalised."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # handlers run between bytecodes


def test_a_signal_during_a_collection_is_not_lost() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background
    try:
        Interrupting()
        with pytest.raises(KeyboardInterrupt):
            collect_garbage()
    finally:
        signal.signal(signal.SIGINT, before)
