"""The connections of a folded node to another node: one per flow group of its workers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.predicted_transfer import Part, PredictedTransfer, ServerPath, send_at
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.worker_group import FlowGroup, WorkerGroup


class GroupConnections:
    """Takes one message and sends it for every worker of the group, each when its steps are done."""

    def __init__(
        self,
        clock: Clock,
        group: WorkerGroup,
        flow_groups: Sequence[FlowGroup],
        connections: Sequence[TcpConnection],
        path: ServerPath,
    ) -> None:
        self._clock, self._group, self._path = clock, group, path
        self._connections = list(zip(flow_groups, connections, strict=True))
        self._last_begin_s = -math.inf
        # workers in step are one flow or two: predicting these saves nothing
        self._port = path.port if connections[0].unlimited and not group.in_step else None
        self.count = len(self._connections)
        # a message of every worker has so many bytes more than ``group.size`` messages of the first one
        self.extra_bytes = sum(each.extra_bytes * each.copies for each in flow_groups)

    def send(self, size_bytes: float, priority: float, envelope: Envelope) -> None:
        """Send one message of every worker; ``size_bytes`` is that of the first worker's."""
        now_s, port = self._clock.now, self._port
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
