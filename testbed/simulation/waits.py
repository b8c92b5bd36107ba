"""Named waits: deadlines in virtual time, and the wait graph of a run in which no node can advance."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import msgspec

from testbed.errors import WaitTimeout
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.task import Task

_LONGEST_GRAPH = 50


class Deadlock(WaitTimeout):
    """A wait that no node can end. ``wait_graph`` has one line for each wait of a node."""

    def __init__(self, wait: Wait, deadline_s: float, wait_graph: list[str]) -> None:
        super().__init__(wait.node, wait.waiting_for, wait.since_s, deadline_s)
        self.wait_graph = wait_graph
        shown = wait_graph[:_LONGEST_GRAPH]
        if len(wait_graph) > len(shown):
            shown = [*shown, f"… and {len(wait_graph) - len(shown)} more"]
        lines = "\n  ".join(shown)
        since = f"{wait.node} waited for {wait.waiting_for} since t = {wait.since_s:.3f} s"
        super(WaitTimeout, self).__init__(f"{since}, and no node can advance:\n  {lines}")


class Wait(msgspec.Struct, eq=False):
    """One named wait of one node."""

    node: str
    waiting_for: str
    since_s: float
    end_s: float
    future: VirtualFuture[Any]
    task: Task
    expired: bool = False
    graph: list[str] | None = None  # the wait graph when it expired, if no node could advance then

    def __await__(self) -> Generator[VirtualFuture[Any], Any, None]:
        return iter((self.future,))  # type: ignore[return-value]  # as a generator would yield, but cheaper

    def __str__(self) -> str:
        return f"{self.node} waits for {self.waiting_for} since t = {self.since_s:.3f} s"


class Waits:
    """All waits of a run.

    One timer serves all deadlines. It is armed for the earliest deadline and not changed when that wait ends, so a wait
    that ends in time, as nearly all do, costs no event.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[Wait, None] = {}  # in the order in which they began
        self._armed_s = math.inf
        self.graph: list[str] | None = None  # set while only a deadline can let a node advance

    def enter(self, node: str, waiting_for: str, deadline_s: float, future: VirtualFuture[Any]) -> Wait:
        """Begin a wait of the current task for ``future``. Await the ``Wait``, then ``leave`` it."""
        now = self._clock.now
        end_s = now + deadline_s
        wait = Wait(node, waiting_for, now, end_s, future, self._clock.current_task)
        self._waits[wait] = None
        if end_s < self._armed_s:
            self._arm(end_s)
        return wait

    def leave(self, wait: Wait) -> None:
        del self._waits[wait]

    def describe(self) -> list[str]:
        """Return the wait graph as lines, the longest wait first. Waits without a deadline are idle and left out."""
        return [str(wait) for wait in self._waits if wait.end_s < math.inf]

    def by_node(self) -> dict[str, list[Wait]]:
        """Return the waits of every waiting node, the longest first."""
        waits: dict[str, list[Wait]] = {}
        for wait in self._waits:
            waits.setdefault(wait.node, []).append(wait)
        return waits

    def earliest_s(self) -> float:
        """Return the earliest deadline; infinite if there is none."""
        return min((wait.end_s for wait in self._waits), default=math.inf)

    def error(self, wait: Wait) -> WaitTimeout:
        deadline_s = wait.end_s - wait.since_s
        if wait.graph is not None:
            return Deadlock(wait, deadline_s, wait.graph)
        return WaitTimeout(wait.node, wait.waiting_for, wait.since_s, deadline_s)

    def _arm(self, at_s: float) -> None:
        self._armed_s = at_s
        self._clock.at_background(at_s, lambda _: self._on_timer(at_s))

    def _on_timer(self, armed_s: float) -> None:
        if armed_s != self._armed_s:
            return
        now = self._clock.now
        for wait in [wait for wait in self._waits if wait.end_s <= now]:
            self._expire(wait)
        self._armed_s = math.inf
        earliest_s = min((w.end_s for w in self._waits if not w.expired), default=math.inf)
        if earliest_s < math.inf:
            self._arm(earliest_s)

    def _expire(self, wait: Wait) -> None:
        """Resume the waiting task; the future stays unset."""
        task = wait.task
        if wait.expired or wait.future.done():
            return
        wait.expired = True
        wait.graph = self.graph
        task.stop_waiting()

        def resume(event: Any) -> None:
            if wait in self._waits:  # otherwise its node has been closed meanwhile
                task.resume(event)

        self._clock.soon(resume)
