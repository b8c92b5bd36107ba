"""The interface between training and a library's group of workers."""

from __future__ import annotations

import asyncio
from typing import Protocol

from torch import Tensor


class ProcessGroup(Protocol):
    """The workers that sum together. All start the same sums in the same order."""

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place over all workers; the future is done when the sum is."""

    def received_bytes(self) -> dict[str, int]:
        """Bytes received from each other worker since the last call."""
