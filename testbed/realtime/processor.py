"""A node's computation: in threads beside the event loop, so that messages keep moving, in the order of the calls.

All nodes of a machine share its cores, so training steps take turns. There is one token for each core, and a step holds
one while it computes; on a GPU, it holds its share of 100 tokens. Without tokens, concurrent steps would slow each
other down by amounts that depend on the host and that no model of the device contains.
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

GPU_TOKENS = 100  # per GPU

_LOWEST_PRIORITY = 19
INLINE_S = 50e-6  # handing work to a thread, and its result back, costs about as much
_ASSUMED_ELEMENT_S = 10e-9  # duration per element of a codec that has not been measured yet
_NEWEST = 0.3  # weight of the newest measurement


@dataclass(frozen=True, slots=True)
class Tokens:
    """A counting semaphore (an eventfd) that forked processes share. ``holder``: number of the process with this view.

    Two bytes of shared memory per holder say how many tokens it has, and whether it has the turn to take several. So
    the parent can ``give_back`` the tokens of a process that was killed or stopped.

    need  number of tokens that this holder takes at a time; to take several it first waits for the turn, so that no two
          holders block each other, each with some of the tokens
    """

    descriptor: int
    turn: int
    holding: mmap.mmap
    holder: int = 0
    need: int = 1

    @classmethod
    def make(cls, count: int, holders: int = 1) -> Tokens:
        """Make ``count`` tokens for the processes 0 to ``holders`` - 1."""
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        return cls(os.eventfd(count, flags), os.eventfd(1, flags), mmap.mmap(-1, 2 * holders))

    def of(self, holder: int, need: int = 1) -> Tokens:
        """Return the view of ``holder``, which takes ``need`` tokens at a time."""
        return replace(self, holder=holder, need=need)

    def acquire(self, deadline_s: float) -> None:
        """Block this thread until it has taken ``need`` tokens. Raise ``TimeoutError`` after ``deadline_s``."""
        end_s = time.monotonic() + deadline_s
        mine = 2 * self.holder
        several = self.need > 1
        taken = 0
        try:
            while taken < self.need or (several and not self.holding[mine + 1]):
                if several and not self.holding[mine + 1]:  # at first, and after SIGSTOP, which takes the turn away
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
        """Give the tokens back, unless the parent has done so."""
        self._give(min(self.need, self.holding[2 * self.holder]))

    def _give(self, count: int) -> None:
        place = 2 * self.holder
        # Counted down first: if SIGSTOP comes in between, the parent must not give the same tokens back again.
        self.holding[place] = max(0, self.holding[place] - count)
        os.eventfd_write(self.descriptor, count)

    def give_back(self, holder: int) -> None:
        """Release the tokens of ``holder``, which is dead or stopped. If it goes on, it ends its step without any."""
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
    """Take one token from an eventfd. Raise ``TimeoutError`` at ``end_s`` of the monotonic clock."""
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
    """Three threads: one for training, sums and optimizers; one for codecs; and one, of the lowest priority, for
    evaluations and checkpoints.
    """

    def __init__(
        self, tokens: Tokens, deadline_s: float, timed: Timed = timed_on_host, codec_timed: Timed = timed_on_host
    ) -> None:
        """``timed``, and ``codec_timed`` for codecs, run a function and return its value and its duration in s."""
        self._tokens = tokens
        self._deadline_s = deadline_s
        self.timed = timed
        self._codec_timed = codec_timed
        self._timed_path = ThreadPoolExecutor(1, "compute", lambda: torch.set_num_threads(1))
        self._codecs = ThreadPoolExecutor(1, "codecs", lambda: torch.set_num_threads(1))
        self._coding = 0  # unfinished pieces of work of the codec thread
        self._element_s: dict[str, float] = {}  # measured duration per element of codecs, by the row of their cost
        self._background = ThreadPoolExecutor(1, "background", _lower_priority)

    async def step(self, function: Callable[[], T]) -> tuple[T, float]:
        """Run a training step while holding its tokens; return its value and its real duration in s."""
        return await asyncio.get_running_loop().run_in_executor(self._timed_path, self._with_token, function)

    async def run(self, function: Callable[[], T]) -> tuple[T, float]:
        """Run in the training thread without tokens; return the value and the real duration in s."""
        return await asyncio.get_running_loop().run_in_executor(self._timed_path, self.timed, function)

    async def code(self, row: str, elements: int, function: Callable[[], T]) -> tuple[T, float]:
        """Run a codec in the codec thread, or in this thread if that one is idle and handing over would take longer.

        Return the value and the real duration in s. ``row``: the row of the codec's cost.
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
