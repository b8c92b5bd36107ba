"""Random networks of flows, and what happens: ``python -m tests.simulation.flows.random_cases`` compares 1 000.

They are those of packets (``tests.simulation.packets.random_cases``), with connections that several nodes share.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random
from typing import Any

from testbed.plan.model import Plan
from testbed.simulation.best_effort import FlowCarrier, Item
from testbed.simulation.flows.connection import ConnectionGroup, FlowConnection
from testbed.simulation.flows.links import FlowLinks
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.tcp_model import TcpModel
from tests.simulation.packets import random_cases


class Case(random_cases.Case):
    """One case. ``compiled``: see ``Engine``."""

    def _begin(self, plan: Plan, model: TcpModel, compiled: bool | None) -> None:
        self._model = model
        self.flows = FlowNetwork(self.clock, self._paths.capacities(), compiled)
        self.network = FlowLinks(self.clock, self.flows, self._paths)  # type: ignore[assignment]

    def _connect(self, source: str, target: str) -> FlowConnection:
        path, links = self._paths.between(source, target)
        group = ConnectionGroup(self._random.choice([1, 1, 1, 3]))
        deliver = partial(self._write, source, target)
        connection = FlowConnection(self.clock, self.flows, path, links, self._model, deliver, group)
        self.network.add(connection, path, links, (source, target, 0))  # type: ignore[attr-defined]
        return connection

    def _send_datagrams(self, source: str, target: str, count: int) -> None:
        path, _ = self._paths.between(source, target)
        deliver = partial(self._write, source, target)
        beside = self.connections[source, target].flow
        carrier = FlowCarrier(self.clock, self.flows, path, beside, 1.0, Random(1), deliver)
        carrier.carry(Item("datagrams", 1200 * count, count), 1)  # type: ignore[arg-type]

    def result(self) -> list[Any]:
        self._finish()
        ends = [
            (each.carried_bytes, each.record.bursts, each.record.pauses, each.record.window_bytes, each.state())
            for each in self.connections.values()
        ]
        return [self.log, self.network.counters(self._paths.links), ends, self.flows.net.steps]


def differing(seeds: range, compiled: bool | None = True) -> list[int]:
    """Return the cases in which compiled code does anything else than Python. ``compiled``: see ``Engine``."""
    return [seed for seed in seeds if Case(seed, False).result() != Case(seed, compiled).result()]


if __name__ == "__main__":
    found = differing(range(1000))
    sys.stdout.write(f"{len(found)} of 1000 cases differ {found or ''}\n")
    sys.exit(bool(found))
