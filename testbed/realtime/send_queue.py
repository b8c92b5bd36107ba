"""Frames to be sent to one peer: larger priority first, first in first out within a priority, bounded in bytes.

A frame enters the queue when it is posted, so an urgent frame overtakes others at once. While more bytes than the limit
are queued, the *senders* wait. So the queue holds at most its limit and one frame per waiting sender.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass

import torch


@dataclass(slots=True, eq=False)
class Queued:
    """One frame to be sent."""

    header: bytes
    parts: tuple[torch.Tensor, ...]
    body_bytes: int
    accepted: asyncio.Future[None] | None = None


class SendQueue:
    """See the module's docstring. ``limit_bytes``: bytes of headers and tensors above which senders wait."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._heap: list[tuple[float, int, Queued]] = []  # in the order in which frames leave
        self._waiting: list[Queued] = []  # items whose senders wait
        self._count = 0
        self.queued_bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def post(self, header: bytes, parts: tuple[torch.Tensor, ...] = (), priority: float = 0) -> Queued:
        """Queue a frame and return at once, even above the limit."""
        self._count += 1
        item = Queued(header, parts, sum([part.nbytes for part in parts]))
        heapq.heappush(self._heap, (-priority, self._count, item))
        self.queued_bytes += len(header) + item.body_bytes
        return item

    def accepted(self, item: Queued) -> asyncio.Future[None] | None:
        """Return None if the queue is within its limit, else a future until it is, or until ``item`` has left it."""
        if self.queued_bytes <= self._limit_bytes:
            return None
        item.accepted = asyncio.get_running_loop().create_future()
        self._waiting.append(item)
        return item.accepted

    def pop(self) -> Queued:
        """Remove and return the next frame to send; senders continue when the queue is within its limit again."""
        _, _, item = heapq.heappop(self._heap)
        self.queued_bytes -= len(item.header) + item.body_bytes
        if item.accepted is not None:
            _release(item)
        if self._waiting and self.queued_bytes <= self._limit_bytes:
            self._release_all()
        return item

    def clear(self) -> None:
        """Drop all frames and let all senders continue."""
        self._heap = []
        self.queued_bytes = 0
        self._release_all()

    def _release_all(self) -> None:
        for item in self._waiting:
            _release(item)
        self._waiting.clear()


def _release(item: Queued) -> None:
    if item.accepted is not None and not item.accepted.done():
        item.accepted.set_result(None)
