"""A node's computation: in threads beside the event loop, so that messages keep moving, and in the order of the calls.

All nodes of a machine share its cores, so training steps take turns: while it really computes, a step holds one of as
many tokens as there are cores, or on a GPU its share of a hundred. Without tokens, steps that run at the same time
would slow each other down by amounts that depend on the host and that no model of the device contains.
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
from typing import Any, TypeVar

import torch

from testbed.devices.accelerator import timed_on_host

T = TypeVar("T")
Timed = Callable[[Callable[[], Any]], tuple[Any, float]]

GPU_TOKENS = 100  # of each GPU: a step takes its share of them

_LOWEST_PRIORITY = 19
INLINE_S = 50e-6  # handing work to a thread, and its result back, costs about as much
_ASSUMED_ELEMENT_S = 10e-9  # of a codec that has not been measured yet
_NEWEST = 0.3  # weight of the newest measurement


@dataclass(frozen=True, slots=True)
class Tokens:
    """A counting semaphore (an eventfd) that forked processes share. ``holder``: the process that uses this view.

    Two bytes of shared memory per holder say how many tokens it has now, and whether it is its turn to take several, so
    that the parent can ``give_back`` what a process had that was killed or stopped.

    need  tokens that this holder takes at a time; who takes several waits for its turn first, so that no two wait with
          a part of what they need
    """

    descriptor: int
    turn: int
    holding: mmap.mmap
    holder: int = 0
    need: int = 1

    @classmethod
    def make(cls, count: int, holders: int = 1) -> Tokens:
        """``count`` tokens for the processes 0 to ``holders`` - 1."""
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        return cls(os.eventfd(count, flags), os.eventfd(1, flags), mmap.mmap(-1, 2 * holders))

    def of(self, holder: int, need: int = 1) -> Tokens:
        """The view of ``holder``, which takes ``need`` tokens at a time."""
        return replace(self, holder=holder, need=need)

    def acquire(self, deadline_s: float) -> None:
        """Block this thread until enough are free, and take them. Raise ``TimeoutError`` after ``deadline_s``."""
        end_s = time.monotonic() + deadline_s
        mine = 2 * self.holder
        several = self.need > 1
        taken = 0
        try:
            while taken < self.need or (several and not self.holding[mine + 1]):
                if several and not self.holding[mine + 1]:  # at first, and after a stop, at which it lost its turn
                    self.release()
                    taken = 0
                    _take(self.turn, end_s)
                    self.holding[mine + 1] = 1
                _take(self.descriptor, end_s)
                self.holding[mine] += 1
                taken += 1
        except TimeoutError:
            self.give_back(self.holder)
            raise TimeoutError(f"no core or GPU became free within {deadline_s:g} s") from None
        if several:
            self._end_turn(mine + 1)

    def release(self) -> None:
        """Give the tokens back; none if the parent has given them back meanwhile."""
        self._give(min(self.need, self.holding[2 * self.holder]))

    def _give(self, count: int) -> None:
        place = 2 * self.holder
        self.holding[place] = max(0, self.holding[place] - count)  # first: a stop in between must not give them twice
        os.eventfd_write(self.descriptor, count)

    def give_back(self, holder: int) -> None:
        """Release what ``holder``, which has died or is stopped, may have. One that goes on ends its step without."""
        self.of(holder)._give(self.holding[2 * holder])
        if self.holding[2 * holder + 1]:
            self._end_turn(2 * holder + 1)

    def _end_turn(self, place: int) -> None:
        self.holding[place] = 0
        os.eventfd_write(self.turn, 1)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.turn)
        self.holding.close()


def _take(descriptor: int, end_s: float) -> None:
    """Take one from an eventfd. Raise ``TimeoutError`` at ``end_s`` of the monotonic clock."""
    poll = None
    while True:
        try:
            os.eventfd_read(descriptor)
            return
        except BlockingIOError:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError from None
            if poll is None:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
            poll.poll(left_s * 1000)


class Processor:
    """Three threads: for training, sums and optimizers; for codecs; of the lowest priority, for evaluations and
    checkpoints.
    """

    def __init__(
        self, tokens: Tokens, deadline_s: float, timed: Timed = timed_on_host, codec_timed: Timed = timed_on_host
    ) -> None:
        """``timed`` and, for codecs, ``codec_timed`` return what a function returns, complete, and its seconds."""
        self._tokens = tokens
        self._deadline_s = deadline_s
        self.timed = timed
        self._codec_timed = codec_timed
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
        return await asyncio.get_running_loop().run_in_executor(self._timed_path, self.timed, function)

    async def code(self, row: str, elements: int, function: Callable[[], T]) -> tuple[T, float]:
        """Run a codec in the thread of codecs, or here if that is idle and it takes less than handing it over would.

        ``row``: what it is, for the measured duration of an element.
        """
        if not self._coding and self._element_s.get(row, _ASSUMED_ELEMENT_S) * elements < INLINE_S:
            value, real_s = self._codec_timed(function)
        else:
            self._coding += 1
            try:
                loop = asyncio.get_running_loop()
                value, real_s = await loop.run_in_executor(self._codecs, self._codec_timed, function)
            finally:
                self._coding -= 1
        if elements:
            known_s = self._element_s.get(row, _ASSUMED_ELEMENT_S)
            self._element_s[row] = known_s + (real_s / elements - known_s) * _NEWEST
        return value, real_s

    def aside(self, function: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._background, function)

    def close(self) -> None:
        """End the threads when their current work is done; drop what is queued."""
        for thread in (self._timed_path, self._codecs, self._background):
            thread.shutdown(wait=False, cancel_futures=True)

    def _with_token(self, function: Callable[[], T]) -> tuple[T, float]:
        self._tokens.acquire(self._deadline_s)
        try:
            return self.timed(function)
        finally:
            self._tokens.release()


def _lower_priority() -> None:
    torch.set_num_threads(1)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
