"""A node's computation: in threads beside the event loop, so that messages keep moving, and in the order of the calls.

All nodes of a machine share its cores, so training steps take turns: while it really computes, a step holds one of as
many tokens as there are cores. Without tokens, steps that run at the same time would slow each other down by amounts
that depend on the host and that no model of the device contains.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

T = TypeVar("T")

_LOWEST_PRIORITY = 19
INLINE_S = 50e-6  # handing work to a thread, and its result back, costs about as much
_ASSUMED_ELEMENT_S = 10e-9  # of a codec that has not been measured yet
_NEWEST = 0.3  # weight of the newest measurement


@dataclass(frozen=True, slots=True)
class Tokens:
    """A counting semaphore (an eventfd) that forked processes share. ``holder``: the process that uses this view.

    A byte of shared memory per holder says whether it has a token now, so that the parent can ``give_back`` the token
    of a process that was killed.
    """

    descriptor: int
    holding: mmap.mmap
    holder: int = 0

    @classmethod
    def make(cls, count: int, holders: int = 1) -> Tokens:
        """``count`` tokens for the processes 0 to ``holders`` - 1."""
        return cls(os.eventfd(count, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC), mmap.mmap(-1, holders))

    def of(self, holder: int) -> Tokens:
        """The view of ``holder``, which takes one token at a time."""
        return replace(self, holder=holder)

    def acquire(self, deadline_s: float) -> None:
        """Block this thread until a token is free, and take it. Raise ``TimeoutError`` after ``deadline_s``."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        end_s = time.monotonic() + deadline_s
        while True:
            try:
                os.eventfd_read(self.descriptor)
                self.holding[self.holder] = 1
                return
            except BlockingIOError:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"no core became free within {deadline_s:g} s") from None
                poll.poll(left_s * 1000)

    def release(self) -> None:
        """Give the token back."""
        self.holding[self.holder] = 0
        os.eventfd_write(self.descriptor, 1)

    def give_back(self, holder: int) -> None:
        """Release the token that ``holder``, which has died, may have had."""
        if self.holding[holder]:
            self.of(holder).release()

    def close(self) -> None:
        """Close the descriptors of this process."""
        os.close(self.descriptor)
        self.holding.close()


class Processor:
    """Three threads: for training, sums and optimizers; for codecs; of the lowest priority, for evaluations and
    checkpoints.
    """

    def __init__(self, tokens: Tokens, deadline_s: float) -> None:
        self._tokens, self._deadline_s = tokens, deadline_s
        self._timed_path = ThreadPoolExecutor(1, "compute", lambda: torch.set_num_threads(1))
        self._codecs = ThreadPoolExecutor(1, "codecs", lambda: torch.set_num_threads(1))
        self._coding = 0  # pieces of work that the thread of codecs has yet to do
        self._element_s: dict[str, float] = {}  # of codecs, by the row of their cost: as measured here
        self._background = ThreadPoolExecutor(1, "background", _lower_priority)

    async def step(self, function: Callable[[], T]) -> tuple[T, float]:
        """Run with a token; returns the value and the seconds that it really took."""
        return await asyncio.get_running_loop().run_in_executor(self._timed_path, self._with_token, function)

    async def run(self, function: Callable[[], T]) -> tuple[T, float]:
        """Run in the thread of the timed path without a token; returns the value and the seconds that it took."""
        return await asyncio.get_running_loop().run_in_executor(self._timed_path, timed, function)

    async def code(self, row: str, elements: int, function: Callable[[], T]) -> tuple[T, float]:
        """Run a codec in the thread of codecs, or here if that is idle and it takes less than handing it over would.

        ``row``: what it is, for the measured duration of an element.
        """
        if not self._coding and self._element_s.get(row, _ASSUMED_ELEMENT_S) * elements < INLINE_S:
            value, real_s = timed(function)
        else:
            self._coding += 1
            try:
                value, real_s = await asyncio.get_running_loop().run_in_executor(self._codecs, timed, function)
            finally:
                self._coding -= 1
        if elements:
            known_s = self._element_s.get(row, _ASSUMED_ELEMENT_S)
            self._element_s[row] = known_s + (real_s / elements - known_s) * _NEWEST
        return value, real_s

    def aside(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run in the background thread."""
        return asyncio.get_running_loop().run_in_executor(self._background, function)

    def close(self) -> None:
        """End the threads when their current work is done; drop what is queued."""
        self._timed_path.shutdown(wait=False, cancel_futures=True)
        self._codecs.shutdown(wait=False, cancel_futures=True)
        self._background.shutdown(wait=False, cancel_futures=True)

    def _with_token(self, function: Callable[[], T]) -> tuple[T, float]:
        self._tokens.acquire(self._deadline_s)
        try:
            return timed(function)
        finally:
            self._tokens.release()


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """The value of ``function``, and the wall-clock seconds that it took."""
    start_s = time.perf_counter()
    return function(), time.perf_counter() - start_s


def _lower_priority() -> None:
    torch.set_num_threads(1)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
