"""An agent of a run as the driver knows it, and the times of its machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from testbed.cluster.clocks import ClockComparison
from testbed.cluster.control import ControlConnection
from testbed.cluster.files import ReceivedFiles
from testbed.cluster.machines import Placement
from testbed.cluster.starting import StartedAgent


@dataclass(slots=True, eq=False)
class AgentHandle:
    """An agent of a run.

    epoch_ns            the run's start, on the driver's clock
    about               the machine, as the agent describes it; empty until it has
    offset_at_epoch_ns  of its clock, as known when its first nodes start
    heard_s             when its last message came
    unanswered          questions without an answer: it may be busy
    lost                why it is gone; empty while it is there
    """

    placement: Placement
    started: StartedAgent
    files: ReceivedFiles
    epoch_ns: int
    connection: ControlConnection | None = None
    clock: ClockComparison = field(default_factory=ClockComparison)
    about: dict[str, Any] = field(default_factory=dict)
    offset_at_epoch_ns: int = 0
    heard_s: float = field(default_factory=time.monotonic)
    unanswered: int = 0
    lost: str = ""

    @property
    def name(self) -> str:
        return self.placement.name

    @property
    def place(self) -> str:
        """Its name and address, for messages."""
        return f"{self.name} ({self.placement.machine.address})"

    def last_output(self) -> str:
        """Return the last line that it has written, after a colon; empty if there is none."""
        lines = self.started.output().strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    # ---- times --------------------------------------------------------------------------------------------------

    @property
    def epoch_there_ns(self) -> int:
        """The run's start, on the agent's clock."""
        return self.epoch_ns + self.offset_at_epoch_ns

    def clock_there_s(self, t: float) -> float:
        """Return a time of the run, in s by the driver's clock, on the agent's clock as it is known now."""
        return (self.epoch_ns + round(t * 1e9) + self.clock.offset_ns(time.monotonic_ns())) / 1e9

    def run_time_s(self, t: float) -> float:
        """Return a time of the agent's node, in s of the run, by the driver's clock as the offset is known now."""
        offset_ns = self.clock.offset_ns(self.epoch_ns + round(t * 1e9))
        return t + (self.offset_at_epoch_ns - offset_ns) / 1e9

    def correction(self) -> Callable[[float], float]:
        """Return what converts times of events there, in s of the run, to the driver's clock."""
        return self.clock.correction(self.epoch_ns, self.offset_at_epoch_ns)

    def report(self) -> dict[str, Any]:
        """Return what the manifest says of its machine."""
        return {
            "name": self.name, "data_center": self.placement.data_center, "address": self.placement.machine.address,
            "id": self.placement.machine.id, "advertised": self.placement.advertise,
            "nodes": sorted(self.placement.ports),
            **{key: value for key, value in self.about.items() if key != "clock_of"},
            "clock": self.clock.report(), "lost": self.lost,
        }  # fmt: skip
