"""What training wants of a library's group of workers."""

from __future__ import annotations

import asyncio
from typing import Protocol

from torch import Tensor


class ProcessGroup(Protocol):
    """The workers that sum together. Every one starts the same sums in the same order."""

    def start(self, tensor: Tensor) -> asyncio.Future[None]:
        """Begin to sum ``tensor`` in place; the future is done when it is."""

    def received_bytes(self) -> dict[str, int]:
        """What has come in from each other worker since the last call."""
