"""The garbage collector around runs: objects that live as long as the process are not looked at again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NODE_THRESHOLD = 10_000  # allocations: a node's messages are garbage of reference counts long before
_RELAXED_THRESHOLD = 1_000_000  # allocations; hardly anything in a run is garbage that only the collector finds


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Let the collector pass over all objects of now, as before a fork.

    None of them is looked at before, which would cost more than a short run. No effect inside
    ``relaxed_garbage_collection``.
    """
    if gc.get_threshold()[0] == _RELAXED_THRESHOLD:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def relaxed_garbage_collection() -> Iterator[None]:
    """Let the collector pass over the objects that exist now, and run seldom. Nested uses have no effect."""
    thresholds = gc.get_threshold()
    with frozen_garbage():
        gc.set_threshold(_RELAXED_THRESHOLD, *thresholds[1:])
        try:
            yield
        finally:
            gc.freeze()  # else the next allocation would look at all that the block has left
            gc.set_threshold(*thresholds)


def collect_after_fork() -> None:
    """Let the collector of a forked process run less often, and never look at what its parent has left.

    What it looks for is rare, and looking costs each time. Garbage of the parent, collected here, would close files
    whose descriptors belong to other files of this process by then.
    """
    gc.freeze()
    gc.set_threshold(_NODE_THRESHOLD, *gc.get_threshold()[1:])


def pass_over_present_objects() -> None:
    """Let the collector pass over all objects of now until the enclosing ``relaxed_garbage_collection`` ends."""
    gc.freeze()
