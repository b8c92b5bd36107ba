"""Work that the launching process does while nodes start: they connect and register, but training does not begin."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Hold:
    """``work`` is carried out once, after the first nodes have been forked.

    The scheduler's process waits for ``over`` before it lets any node begin, so no tensor is sent during the work.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def carry_out(self) -> None:
        """Do the work, unless it was done for earlier nodes of the run."""
        if self._work is not None:
            self._work()
            self._work = None
            os.eventfd_write(self._ended, 1)

    async def over(self) -> None:
        """Return when the work has been done; called in a process that was forked after this was made."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end() -> None:
            loop.remove_reader(self._ended)
            ended.set_result(None)

        loop.add_reader(self._ended, end)
        await ended

    def close(self) -> None:
        os.close(self._ended)
