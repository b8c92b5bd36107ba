"""Threads in which a simulation computes training steps.

A training step begins at one instant of virtual time, and its result is needed at a later one. Other nodes cannot
change the result in between. So threads compute steps in parallel that overlap in virtual time, each step in one
thread, and every bit is the same for any number of threads. Roles leave a model unchanged while a step is computed;
real worlds, which also compute in threads, require the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

_TRIED = 3  # steps; the first one also loads what PyTorch needs
_WORTH_S = 10e-3


class StepThreads:
    """``count`` threads that compute training steps, if steps take long enough.

    Threads run PyTorch's operations in parallel, but not the Python code between them. So steps of many small
    operations are slower in threads. The duration of the first steps decides whether threads are used; results are the
    same.
    """

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count, "steps", lambda: torch.set_num_threads(1))
        self._tried = 0
        self._least_s = math.inf  # least processor time of the steps tried

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Compute a step, in a thread if that is worth it, or else now. Return its future."""
        if self._tried == _TRIED and self._least_s >= _WORTH_S:
            return self._threads.submit(function)
        begin_s = time.thread_time()
        done = done_now(function)
        if self._tried < _TRIED:
            self._tried += 1
            self._least_s = min(self._least_s, time.thread_time() - begin_s)
        return done

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def done_now(function: Callable[[], T]) -> Future[T]:
    """Compute ``function`` now. Return a future with its result or error."""
    done: Future[T] = Future()
    try:
        done.set_result(function())
    except Exception as error:
        done.set_exception(error)
    return done
