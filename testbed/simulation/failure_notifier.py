"""Who hears from whom, where processes die and come back while the run goes on, as connections would have it.

A real node hears of a death by the end of a connection, after all that came on it, and takes nothing from a connection
that it has given up. So who came back and died before its first word was there has never been back. And whoever comes
back calls the others first: what they send before that goes to the process that is dead. Nor is a second connection
taken from a name whose first still stands: no word of who came back is heard before the news of the death.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.plan.model import Plan
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.world import SimulatedWorld

Deliver = Callable[[Envelope], None]


class FailureNotifier:
    """``monitor``: the scheduler's world. Where nobody comes back it costs nothing."""

    def __init__(self, plan: Plan, clock: Clock, monitor: Callable[[], SimulatedWorld]) -> None:
        self._clock, self._monitor = clock, monitor
        self._changes = plan.recovery.on_failure == "continue" and bool(plan.faults)
        self._dead: set[SimulatedWorld] = set()
        self._unheard: dict[str, tuple[SimulatedWorld, str]] = {}  # deaths of which the news is on its way, by node
        self._heard_by: dict[SimulatedWorld, set[SimulatedWorld]] = {}  # of those that have come back

    def way(self, source: SimulatedWorld, target: SimulatedWorld) -> Deliver:
        """What a connection is to call with what arrives."""
        return partial(self._deliver, source, target) if self._changes else target.deliver

    def _deliver(self, source: SimulatedWorld, target: SimulatedWorld, letter: Envelope) -> None:
        if target is self._monitor():
            if source in self._dead:
                return
            if source.node in self._unheard and self._unheard[source.node][0] is not source:
                self._arrives(*self._unheard[source.node])
        heard = self._heard_by.get(source)
        if heard is not None and target not in heard:
            heard.add(target)
            target.forget(source.node)
        target.deliver(letter)

    def returned(self, world: SimulatedWorld) -> None:
        """It takes the place of one that was there before."""
        self._heard_by[world] = set()

    def of_death(self, dead: SimulatedWorld, why: str, delay_s: float) -> None:
        """The news is there after ``delay_s``, and is heard after what came before it."""
        self._unheard[dead.node] = dead, why
        self._clock.at(self._clock.now + delay_s, lambda _: self._arrives(dead, why))

    def _arrives(self, dead: SimulatedWorld, why: str) -> None:
        if dead in self._dead:
            return  # it came before, with the first word of who took its place
        self._dead.add(dead)
        if self._unheard.get(dead.node, (None,))[0] is dead:
            del self._unheard[dead.node]
        monitor = self._monitor()
        at_s = max(self._clock.now, monitor.reading_until_s)
        self._clock.at(at_s, lambda _: monitor.lost(dead.node, why))
