"""Threads in which a simulation computes training steps.

A training step begins at one instant of virtual time, and its result is wanted at a later one. What other nodes do
between the two cannot change it. So threads compute steps that overlap in virtual time at the same time, each step in
one thread, and whatever the number of threads, every bit is the same. Roles leave a model unchanged while a step
computes; real worlds, which compute in threads as well, require the same.
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
    """``count`` threads that compute training steps, if steps are worth it.

    Operations of PyTorch run beside each other, and what Python does between two of them does not. So steps of many
    small operations are slower in threads. How long the first steps take here decides that, and changes no result.
    """

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count, "steps", lambda: torch.set_num_threads(1))
        self._tried = 0
        self._least_s = math.inf  # that a step has taken of the processor

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Compute a step: now, or in a thread."""
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
    """Compute now; return the result, or the error."""
    done: Future[T] = Future()
    try:
        done.set_result(function())
    except Exception as error:
        done.set_exception(error)
    return done
