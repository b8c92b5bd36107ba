"""How the scheduler hears of a death, where the run goes on: after the news, nothing of the dead process is heard.

A real one hears of it by the end of a connection, after all that came on it, and takes nothing from a connection that
it has given up. So who came back and died before its first word was there has never been back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.simulation.clock import Clock
from testbed.simulation.world import Letter, SimulatedWorld

Deliver = Callable[[Letter], None]


class News:
    """``monitor``: the scheduler's world."""

    def __init__(self, clock: Clock, monitor: Callable[[], SimulatedWorld]) -> None:
        self._clock, self._monitor = clock, monitor
        self._dead: set[SimulatedWorld] = set()

    def way(self, source: SimulatedWorld, target: SimulatedWorld) -> Deliver:
        """What a connection is to call with what arrives."""
        return partial(self._deliver, source, target) if target is self._monitor() else target.deliver

    def _deliver(self, source: SimulatedWorld, target: SimulatedWorld, letter: Letter) -> None:
        if source not in self._dead:
            target.deliver(letter)

    def of_death(self, dead: SimulatedWorld, why: str, delay_s: float) -> None:
        """The news is there after ``delay_s``, and is heard after what came before it."""
        self._clock.at(self._clock.now + delay_s, lambda _: self._arrives(dead, why))

    def _arrives(self, dead: SimulatedWorld, why: str) -> None:
        self._dead.add(dead)
        monitor = self._monitor()
        at_s = max(self._clock.now, monitor.reading_until_s)
        self._clock.at(at_s, lambda _: monitor.lost(dead.node, why))
