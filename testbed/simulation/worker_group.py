"""The members of a folded node: each one's steps, and the lanes over which their messages go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from testbed.plan.model import NodePlan
from testbed.plan.pace import Pacer
from testbed.simulation.clock import Clock
from testbed.simulation.predicted_transfer import Part, PredictedTransfer, ServerPath, start
from testbed.simulation.tcp import TcpConnection


class FlowGroup:
    """Members whose messages leave at the same time and are of one size: ``more_bytes`` than the first member's."""

    __slots__ = ("copies", "index", "more_bytes")

    def __init__(self, index: int, copies: int, more_bytes: int) -> None:
        self.index, self.copies, self.more_bytes = index, copies, more_bytes


class WorkerGroup:
    """Who stands behind one folded node. Workers of one device and without chance do everything at the same time."""

    def __init__(self, members: Sequence[NodePlan], seed: int) -> None:
        devices = {member.device for member in members}
        self.size = len(members)
        self.alike = len(devices) == 1 and not members[0].device.variation
        self._first = len(members[0].name)
        self._by_length = self._lanes_by_length(members)
        moving = members[:1] if self.alike else members
        self._pacers = [Pacer(member.device, seed, member.name) for member in moving]
        self._ready_s = [0.0] * len(moving)
        each = [] if self.alike else members
        self._each = [FlowGroup(i, 1, len(member.name) - self._first) for i, member in enumerate(each)]

    def lanes(self, in_step: bool) -> list[FlowGroup]:
        """The lanes to another node. ``in_step``: for messages that all members send at the same time.

        A sender's name is in the header of its messages; so that their sizes are right, its length makes a lane.
        """
        return self._by_length if in_step or self.alike else self._each

    def work(self, steps: float, now_s: float) -> float:
        """All begin a piece of work, each when it has done what it had; returns when the first of them is done."""
        ready = self._ready_s
        for i, pacer in enumerate(self._pacers):
            begin_s = ready[i] if ready[i] > now_s else now_s
            ready[i] = begin_s + pacer.duration_s(steps, begin_s)
        return min(ready)

    def ready_s(self, lane: FlowGroup) -> float:
        """When the members of a lane are done with their work."""
        return self._ready_s[0] if self.alike else self._ready_s[lane.index]

    def _lanes_by_length(self, members: Sequence[NodePlan]) -> list[FlowGroup]:
        counts: dict[int, int] = {}
        for member in members:
            counts[len(member.name)] = counts.get(len(member.name), 0) + 1
        return [FlowGroup(0, count, length - self._first) for length, count in counts.items()]


class FlowGroups:
    """All connections of a folded node to another: takes one message, and sends it for every member."""

    def __init__(
        self,
        clock: Clock,
        crew: WorkerGroup,
        lanes: Sequence[FlowGroup],
        connections: Sequence[TcpConnection],
        way: ServerPath,
    ) -> None:
        self._clock, self._crew, self._lanes = clock, crew, list(zip(lanes, connections, strict=True))
        self._way, self._latest_begin_s = way, -math.inf
        # members that do all at the same time are one flow or two: foreseeing these gains nothing
        self._port = way.port if connections[0].plain and not crew.alike else None
        self.count = len(self._lanes)
        self.more_bytes = sum(lane.more_bytes * lane.copies for lane in lanes)  # than so many of the first's messages

    def send(self, size_bytes: float, priority: float, item: Any) -> None:
        """Send one message of every member, each when it has done its work."""
        now_s, port = self._clock.now, self._port
        parts: list[Part] = []
        for number, (lane, connection) in enumerate(self._lanes):
            ready_s = self._crew.ready_s(lane)
            begin_s = ready_s if ready_s > now_s else now_s
            parts.append((begin_s, number, size_bytes + lane.more_bytes, lane.copies, connection))
        if port is not None and self._all_idle() and port.free:
            PredictedTransfer(self._clock, self._way, port, parts, priority, item)
        else:
            if port is not None and port.give_way is not None:
                port.give_way()
            for begin_s, _, size, _, connection in parts:
                start(self._clock, begin_s, connection, (size, priority, item))
        self._latest_begin_s = max(parts)[0]

    def _all_idle(self) -> bool:
        """Whether nothing is on its way, nor about to be."""
        return self._latest_begin_s < self._clock.now and all(connection.idle for _, connection in self._lanes)
