"""Tasks in the background of a node, whose errors end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Keeps tasks alive and passes their errors to ``fail``, until ``cancel``.

    ``asyncio.TaskGroup`` would need a coroutine that waits in it; these tasks belong to an object.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled = False

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of the running loop."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._cancelled:
            self._fail(error)

    def cancel(self) -> None:
        """End all tasks; errors no longer count."""
        self._cancelled = True
        for task in self._tasks:
            task.cancel()
