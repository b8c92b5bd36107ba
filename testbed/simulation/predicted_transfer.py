"""The connections of a folded node, and predictions of transfers from a worker group to its server over a private LAN.

While nothing else sends into the server's port, only the workers' flows share it. So the end of each flow can be
computed when the first one starts: ``flows.solver.simulate`` runs the flow network's own solver on a network of one
link. Then a transfer needs only one event, its last arrival, instead of four per worker. When another flow enters the
port, the prediction is withdrawn: flows that have not ended continue in the real flow network from their present state
(``tests/simulation/test_predicted_transfer.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.flows.network import FlowNetwork, ReservableLink
from testbed.simulation.inbox import SimulatedInbox
from testbed.simulation.worker_group import FlowGroup, WorkerGroup


@dataclass(frozen=True, slots=True)
class ServerPath:
    """The path from a worker group to its server. ``port``: the server's port, if it may be reserved."""

    network: FlowNetwork
    inbox: SimulatedInbox
    port: ReservableLink | None = None
    delay_s: float = 0.0


# The messages of one flow group: when they begin (s), number of the group, size of each (bytes), copies, connection.
Part = tuple[float, int, float, int, FlowConnection]


class PredictedTransfer:
    """One envelope in several parts. Reserves the port until the last part has arrived or another flow enters the port.

    The prediction is made at the end of the instant, so that it includes flows that start at the same instant.
    """

    __slots__ = ("_arrivals", "_clock", "_envelope", "_parts", "_path", "_port", "_priority", "_released", "_reported")

    def __init__(
        self,
        clock: Clock,
        path: ServerPath,
        port: ReservableLink,
        parts: list[Part],
        priority: float,
        envelope: Envelope,
    ) -> None:
        self._clock = clock
        self._path = path
        self._port = port
        self._parts = sorted(parts)
        self._priority = priority
        self._envelope = envelope
        self._arrivals: list[tuple[float, int]] = []  # time in s and number of copies of each arrival
        self._reported = 0  # number of arrivals that the receiver knows
        self._released = False
        port.on_other_flow = self.withdraw
        path.inbox.catch_up = self.catch_up
        clock.at_end_of_instant(self._predict)

    def _predict(self, _: Any) -> None:
        if self._released:
            return
        _left, ends_s, order = self._simulate(math.inf)
        delay_s = self._path.delay_s
        self._arrivals = [(ends_s[i] + delay_s, self._parts[i][3]) for i in order]
        self._clock.at(self._arrivals[-1][0], self._finish)

    def _simulate(self, until_s: float) -> tuple[list[float], list[float], list[int]]:
        """See ``FlowNetwork.simulate``."""
        parts = self._parts
        network = self._path.network.isolated(parts[0][4].flow, len(parts))
        return network.simulate([(begin_s, size_bytes, copies) for begin_s, _, size_bytes, copies, _ in parts], until_s)

    def _finish(self, _: Any) -> None:
        if self._released:
            return
        self._release()
        for _begin_s, _number, size_bytes, copies, connection in self._parts:
            connection.flow.record.delivered += size_bytes * copies
        self._path.inbox.deliver(self._envelope, self._arrivals[-1][1])

    def _release(self) -> None:
        self.catch_up()
        self._released = True
        self._port.on_other_flow = self._path.inbox.catch_up = None

    def catch_up(self) -> None:
        """Report the parts that have arrived by now to the receiver, except the last one, which has its own event."""
        arrivals = self._arrivals
        now = self._clock.now
        while self._reported < len(arrivals) - 1 and arrivals[self._reported][0] <= now:
            at_s, copies = arrivals[self._reported]
            self._path.inbox.part_arrived(self._envelope, copies, at_s)
            self._reported += 1

    def withdraw(self) -> None:
        """Continue the unfinished parts in the real flow network, as another flow is about to enter the port."""
        self._release()
        left, ends_s, order = self._simulate(self._clock.now)
        for at_s, copies in self._arrivals[self._reported : len(order)]:
            self._clock.at(at_s, partial(self._deliver, copies))
        for i, (begin_s, _number, size_bytes, copies, connection) in enumerate(self._parts):
            connection.flow.record.delivered += (size_bytes - left[i]) * copies
            if ends_s[i] == math.inf:
                send_at(self._clock, begin_s, connection, (left[i], self._priority, self._envelope))

    def _deliver(self, copies: int, _: Any) -> None:
        self._path.inbox.deliver(self._envelope, copies)


class GroupConnections:
    """The connections of a folded node to another node, one per flow group of its workers.

    It takes one message and sends it for every worker of the group, when that worker's steps are done.
    """

    def __init__(
        self,
        clock: Clock,
        group: WorkerGroup,
        flow_groups: Sequence[FlowGroup],
        connections: Sequence[FlowConnection],
        path: ServerPath,
    ) -> None:
        self._clock = clock
        self._group = group
        self._path = path
        self._connections = list(zip(flow_groups, connections, strict=True))
        self._last_begin_s = -math.inf
        # workers in step have only one or two flows, so a prediction would save nothing
        self._port = path.port if connections[0].unlimited and not group.in_step else None
        self.count = len(self._connections)
        # by how many bytes one message from every worker exceeds ``group.size`` messages as large as the first worker's
        self.extra_bytes = sum(each.extra_bytes * each.copies for each in flow_groups)

    def __iter__(self) -> Iterator[FlowConnection]:
        return (connection for _, connection in self._connections)

    def send(self, size_bytes: float, priority: float, envelope: Envelope) -> None:
        """Send one message of every worker. ``size_bytes`` is the size of the first worker's message."""
        now_s = self._clock.now
        port = self._port
        parts: list[Part] = []
        for number, (flow_group, connection) in enumerate(self._connections):
            ready_s = self._group.ready_s(flow_group)
            begin_s = ready_s if ready_s > now_s else now_s
            parts.append((begin_s, number, size_bytes + flow_group.extra_bytes, flow_group.copies, connection))
        if port is not None and self._all_idle() and port.free:
            PredictedTransfer(self._clock, self._path, port, parts, priority, envelope)
        else:
            if port is not None and port.on_other_flow is not None:
                port.on_other_flow()
            for begin_s, _, size, _, connection in parts:
                send_at(self._clock, begin_s, connection, (size, priority, envelope))
        self._last_begin_s = max(parts)[0]

    def _all_idle(self) -> bool:
        """Whether no message is under way or scheduled."""
        return self._last_begin_s < self._clock.now and all(connection.idle for _, connection in self._connections)


def send_at(clock: Clock, begin_s: float, connection: FlowConnection, message: tuple[float, float, Any]) -> None:
    """Send (size in bytes, priority, item) over a connection, now or at ``begin_s``."""
    if begin_s <= clock.now:
        connection.send(*message)
    else:
        clock.at(begin_s, lambda _: connection.send(*message))
