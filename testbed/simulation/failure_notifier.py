"""The order in which nodes hear of a lost node, and of its successor, while the run continues without a restart.

It follows from connections. A real node learns of a failure when a connection ends, after everything that came over it,
and takes nothing more from a connection that it has given up. Hence:

* A node that comes back and is lost again before its first message arrives has, for the others, never been back.
* A node that comes back connects first: what others have sent to it before goes to the process that was lost.
* Who has heard of the new process takes nothing more of the lost one, whose connection ended before.
* The scheduler takes no second connection of a name while the first one stands: it hears of the loss before the first
  message of the successor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.plan.model import Plan
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.world import SimulatedWorld


class FailureNotifier:
    """``scheduler()`` returns the scheduler's world. A world is of one process: a successor has a world of its own.
    Without faults, or if a fault ends the run, it costs nothing.
    """

    def __init__(self, plan: Plan, clock: Clock, scheduler: Callable[[], SimulatedWorld]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._active = plan.recovery.on_failure == "continue" and bool(plan.faults)
        self._known_lost: set[SimulatedWorld] = set()  # of which the scheduler has heard
        self._pending: dict[str, tuple[SimulatedWorld, str]] = {}  # by node: lost, but the scheduler has yet to hear
        self._numbers: dict[SimulatedWorld, int] = {}  # of successors, in the order of their starts
        self._newest: dict[tuple[str, SimulatedWorld], int] = {}  # by node and listener: the newest process heard

    def deliverer(self, source: SimulatedWorld, target: SimulatedWorld) -> Callable[[Envelope], None]:
        """Return what a connection calls with the envelopes that arrive."""
        return partial(self._deliver, source, target) if self._active else target.inbox.deliver

    def _deliver(self, source: SimulatedWorld, target: SimulatedWorld, envelope: Envelope) -> None:
        if target is self._scheduler():
            if source in self._known_lost:
                return
            pending = self._pending.get(source.node)
            if pending is not None and pending[0] is not source:
                self._notify(*pending)
        number = self._numbers.get(source, 0)
        newest = self._newest.get((source.node, target), 0)
        if number < newest:
            return
        if number > newest:
            self._newest[source.node, target] = number
            target.outbox.forget(source.node)
        target.inbox.deliver(envelope)

    def begin_anew(self) -> None:
        """All connections begin anew, over which nothing is in flight: no process that was lost is heard any more."""
        self._numbers.clear()
        self._newest.clear()

    def on_restarted(self, successor: SimulatedWorld) -> None:
        """A lost node is back, as ``successor``."""
        self._numbers[successor] = len(self._numbers) + 1

    def on_lost(self, lost: SimulatedWorld, reason: str, delay_s: float) -> None:
        """A node is lost: the scheduler hears of it after ``delay_s``, and after what came from that node before."""
        self._pending[lost.node] = lost, reason
        self._clock.at(self._clock.now + delay_s, lambda _: self._notify(lost, reason))

    def _notify(self, lost: SimulatedWorld, reason: str) -> None:
        if lost in self._known_lost:
            return  # notified before, with the first message of the successor
        self._known_lost.add(lost)
        if self._pending.get(lost.node, (None,))[0] is lost:
            del self._pending[lost.node]
        inbox = self._scheduler().inbox
        at_s = max(self._clock.now, inbox.reading_until_s)
        self._clock.at(at_s, lambda _: inbox.report_lost(lost.node, reason))
