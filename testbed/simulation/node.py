"""The state that the parts of one simulated node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.devices.accelerator import Accelerator
from testbed.plan.pace import Pacer
from testbed.simulation.clock import Clock, Sleep
from testbed.simulation.step_threads import StepThreads
from testbed.simulation.worker_group import WorkerGroup
from testbed.world import Work


@dataclass(slots=True, eq=False)
class CodingCore:
    """One core, which does the work of a node's codecs piece by piece, in the order of the calls.

    duration_s  returns the duration of a piece of work in seconds
    """

    duration_s: Callable[[Work], float] = lambda work: 0.0
    busy_until_s: float = 0.0

    def take(self, now_s: float, work_s: float) -> float:
        """Take a piece of work. Return when it is done."""
        self.busy_until_s = max(now_s, self.busy_until_s) + work_s
        return self.busy_until_s

    def take_copies(self, begin_s: float, interval_s: float, copies: int, work_s: float) -> float:
        """Take ``copies`` equal pieces that arrive every ``interval_s`` after ``begin_s``. Return when all are done."""
        first_s = begin_s + interval_s + copies * work_s
        last_s = begin_s + copies * interval_s + work_s
        self.busy_until_s = max(self.busy_until_s + copies * work_s, first_s, last_s)
        return self.busy_until_s


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """One process of a node. A node that restarts after a fault gets a new ``SimulatedNode``.

    pacer           gives the durations of its training steps
    group           the workers that it represents, if it is a folded node (``testbed.simulation.fold``)
    coding          the core of its codecs
    paused_until_s  a fault has stopped it until then: it neither reads nor continues anything
    accelerator     the GPU on which its work runs, if any; results are complete when they are returned
    threads         compute its training steps; ``None``: a step is computed at the instant at which it begins
    payloads        factor by which the payloads that it sends reliably are larger on the wire
    host            its name in the network; by default its own name
    """

    name: str
    pacer: Pacer
    group: WorkerGroup | None = None
    paused_until_s: float = 0.0
    ended: bool = False
    accelerator: Accelerator | None = None
    threads: StepThreads | None = None
    payloads: float = 1.0
    host: str = ""
    coding: CodingCore = field(default_factory=CodingCore)
    copies: int = field(init=False)  # how many nodes it represents

    def __post_init__(self) -> None:
        self.copies = self.group.size if self.group is not None else 1
        self.host = self.host or self.name

    async def resumed(self, clock: Clock) -> None:
        """Wait until the node is not paused."""
        while self.paused_until_s > clock.now:
            await Sleep(clock, self.paused_until_s)
