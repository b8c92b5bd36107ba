"""The state that the parts of one simulated node share."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.plan.pace import Pacer
from testbed.simulation.clock import Clock, Sleep
from testbed.simulation.host import Thread
from testbed.simulation.worker_group import WorkerGroup


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """One process of a node: a node that is restarted after a fault is a new one.

    pacer           durations of its training steps
    group           the workers that it represents, if it is a folded node (``testbed.simulation.fold``)
    thread          its process on the shared host, if the Plan has one; else it has a processor of its own
    paused_until_s  a fault has stopped it until then: it neither reads nor continues anything
    """

    name: str
    pacer: Pacer
    group: WorkerGroup | None = None
    thread: Thread | None = None
    paused_until_s: float = 0.0
    ended: bool = False
    copies: int = field(init=False)  # how many nodes it represents

    def __post_init__(self) -> None:
        self.copies = self.group.size if self.group is not None else 1

    async def resumed(self, clock: Clock) -> None:
        """Return when the node is not paused (any longer)."""
        while self.paused_until_s > clock.now:
            await Sleep(clock, self.paused_until_s)
