"""The order in which nodes hear of a lost node, and of its successor, while the run continues without a restart.

The order follows from connections. A real node learns of a failure when a connection ends, after all messages that came
over it, and takes no more messages from a connection that it has given up. Hence:

* If a node comes back and is lost again before its first message arrives, the others never notice that it was back.
* A node that comes back connects to the others. Messages that they have sent to it before go to the lost process.
* A node that has heard from the new process takes no more messages of the lost one, whose connection ended before.
* The scheduler takes no second connection of a name while the first one stands. So it hears of the loss before the
  successor's first message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.plan.model import Plan
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.world import SimulatedWorld


class FailureNotifier:
    """Delivers messages and reports losses in that order.

    ``scheduler()`` returns the scheduler's world. Each process has its own world, so a successor has a new one. Without
    faults, or if a fault ends the run, the notifier costs nothing.
    """

    def __init__(self, plan: Plan, clock: Clock, scheduler: Callable[[], SimulatedWorld]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._active = plan.recovery.on_failure == "continue" and bool(plan.faults)
        self._known_lost: set[SimulatedWorld] = set()  # lost processes that the scheduler knows of
        self._pending: dict[str, tuple[SimulatedWorld, str]] = {}  # by node: losses that the scheduler has yet to hear
        self._numbers: dict[SimulatedWorld, int] = {}  # numbers of successors, in the order of their starts
        self._newest: dict[tuple[str, SimulatedWorld], int] = {}  # by node and listener: newest process heard from

    def deliverer(self, source: SimulatedWorld, target: SimulatedWorld) -> Callable[[Envelope], None]:
        """Return the function that a connection calls with each envelope that arrives."""
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
        """Forget successors, as all connections begin anew with nothing in flight from lost processes."""
        self._numbers.clear()
        self._newest.clear()

    def on_restarted(self, successor: SimulatedWorld) -> None:
        """Note that a lost node is back, as ``successor``."""
        self._numbers[successor] = len(self._numbers) + 1

    def on_lost(self, lost: SimulatedWorld, reason: str, delay_s: float) -> None:
        """Let the scheduler hear of a lost node after ``delay_s``, and after that node's earlier messages."""
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
