"""Threads of a process that forks: joining a thread waits until the kernel has removed it.

Python reports a thread as ended slightly before the kernel removes it, and meanwhile its C code may still hold a lock.
A child forked at that moment inherits the locked lock, which no thread will ever release, and hangs. This happened to
four of 69 children forked right after a thread that had computed with PyTorch.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_POLL_S = 5e-4


def await_end(thread: int) -> None:
    """Wait until the kernel has removed an ending thread of this process. ``thread``: its ``native_id``."""
    while Path(f"/proc/self/task/{thread}").exists():
        time.sleep(_POLL_S)


class EndingThreads(ThreadPoolExecutor):
    """A pool whose threads are removed by the kernel when ``shutdown`` returns or the context is left."""

    def __init__(self, most: int) -> None:
        self._native_ids: list[int] = []
        super().__init__(most, initializer=lambda: self._native_ids.append(threading.get_native_id()))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for thread in self._native_ids:
                await_end(thread)
