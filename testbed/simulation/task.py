"""Tasks: coroutines that run in virtual time, and their results.

As in asyncio, a task runs a coroutine, and its maker may await the result (here a ``TaskFuture``). SimPy's
``Process`` does the same for generators. A ``Task`` needs half as many events, because a process has an event at its
beginning and one at its end. A ``Task`` also hands over the coroutine's exception, whereas SimPy copies the exception
and ends the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from simpy.events import URGENT

from testbed.simulation.clock import Clock, VirtualFuture


class TaskFuture(VirtualFuture[Any]):
    """The result of a task. ``awaited``: whether anything awaits it, and so will see an error."""

    awaited: bool = False

    def __await__(self) -> Any:
        self.awaited = True
        return super().__await__()


class Task:
    """Run ``coroutine`` in virtual time, beginning among the urgent events of the present instant.

    The coroutine yields the ``VirtualFuture`` that it waits for, which must not be done yet, or ``None`` when it
    sleeps and has scheduled its own ``resume``. ``on_end(task, result, error)`` is called when it has returned or
    raised. ``context`` is for the caller's use.
    """

    __slots__ = ("_clock", "_on_end", "_send", "closed", "context", "coroutine", "resume", "waits_for")

    def __init__(
        self,
        clock: Clock,
        coroutine: Coroutine[VirtualFuture[Any] | None, Any, Any],
        on_end: Callable[[Task, Any, BaseException | None], None],
        context: Any = None,
    ) -> None:
        self._clock = clock
        self.coroutine = coroutine
        self._on_end = on_end
        self.context = context
        self._send = coroutine.send
        self.resume: Callable[[Any], None] = self._continue  # one bound method, so that it is found among callbacks
        self.waits_for: VirtualFuture[Any] | None = None  # None while it sleeps
        self.closed = False
        clock.soon(self.resume, None, URGENT)

    def _continue(self, _: Any) -> None:
        if self.closed:
            return
        clock = self._clock
        interrupted, clock.current_task = clock.current_task, self
        try:
            future = self.waits_for = self._send(None)
            if future is not None:
                future.callbacks.append(self.resume)
        except StopIteration as stop:
            self._end(stop.value, None)
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # a technique may call sys.exit
            self._end(None, error)
        finally:
            clock.current_task = interrupted

    def stop_waiting(self) -> None:
        """Withdraw from the future that the task waits for, if any."""
        if self.waits_for is not None and self.resume in self.waits_for.callbacks:
            self.waits_for.callbacks.remove(self.resume)

    def close(self) -> None:
        """Close the coroutine where it is, without calling ``on_end``."""
        self.stop_waiting()
        self._release()
        self.coroutine.close()

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._release()
        self._on_end(self, result, error)

    def _release(self) -> None:
        self.closed = True
        self.waits_for = None
        self.resume = lambda _: None  # breaks the reference cycle of the task and its bound method
