"""Work of the launching process while nodes start: they connect and register, but do not begin to train."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Hold:
    """Carries out ``work`` once, after the first nodes have been forked.

    The scheduler's process awaits ``over`` before it lets any node begin, so nodes send no tensors during the work.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def carry_out(self) -> None:
        """Do the work, unless an earlier call has done it."""
        if self._work is not None:
            self._work()
            self._work = None
            os.eventfd_write(self._ended, 1)

    async def over(self) -> None:
        """Return when the work is done. To be called in a process that was forked after this object was made."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end() -> None:
            loop.remove_reader(self._ended)
            ended.set_result(None)

        loop.add_reader(self._ended, end)
        await ended

    def close(self) -> None:
        os.close(self._ended)
