"""What a group of workers that a library sums over can do, whatever the library."""

from __future__ import annotations

import asyncio
from typing import Protocol

from torch import Tensor


class ProcessGroup(Protocol):
    """The workers that sum together. All start the same sums in the same order."""

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place over all workers; the future is done when the sum is."""

    def received_bytes(self) -> dict[str, int]:
        """Return the bytes received from each other worker since the last call."""


class InsideGroup(ProcessGroup, Protocol):
    """Workers of a data centre, with more operations; see ``start``."""

    def start_reduce(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` at the first worker, in place; at others its content is lost."""

    def start_broadcast(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to copy the first worker's ``tensor`` to the others', in place."""

    def start_reduce_scatter(self, part: Tensor, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor``, of which each worker gets one ``part``, all of one size."""

    def start_all_gather(self, tensor: Tensor, part: Tensor) -> asyncio.Future[None]:
        """Begin to join all workers' ``part`` in ``tensor``."""
