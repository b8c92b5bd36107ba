"""Random networks and what happens in them: ``python -m tests.simulation.packets.random_cases`` compares 1 000.

Each case has a tree of data centres, connections with messages of all sizes, best-effort messages, processes that are
stopped or killed, and links that change. What it comes to is every time, to the bit, and what the links have counted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import loads
from testbed.simulation.clock import Clock
from testbed.simulation.packets.network import PacketNetwork
from testbed.simulation.paths import PathTable, WanLink
from testbed.simulation.tcp_model import TcpModel

_CHANGES = [
    ("rate", 2e6),
    ("rate", 0.0),
    ("rate", 5e7),
    ("delay", 0.005),
    ("delay", 0.1),
    ("loss", 0.02),
    ("state", 0.0),
    ("state", 1.0),
]
_SIZES = (60, 1448, 5000, 30_000, 30_000, 100_000, 700_000, 2_000_000)
_END_S = 300.0


def _plan(random: Random) -> Plan:
    names = "abcd"[: random.randint(2, 4)]
    sites = [
        f"{{name: {name}, workers: {random.randint(1, 2)}, central: {str(name == 'a').lower()}}}" for name in names
    ]
    links = []
    for number in range(1, len(names)):
        rate = random.choice([1, 5, 20, 100, 1000])
        queue = random.choice([4, 16, 64, 256, 2000]) if rate > 1 else 64
        links.append(
            f"{{between: [{names[random.randrange(number)]}, {names[number]}], rate: {rate} Mbit/s, queue: {queue} KB,"
            f" delay: {random.choice([0, 0.1, 1, 5, 20, 60, 150])} ms, loss: {random.choice([0, 0, 0, 0.1, 1, 5])} %}}"
        )
    lan = random.choice(["1 Gbit/s", "10 Gbit/s", "100 Mbit/s"])
    return build_plan(
        loads(f"""
version: 1
name: case
seed: {random.randint(1, 999)}
topology:
  data_centers: [{", ".join(sites)}]
  links: [{", ".join(links)}]
  lan: {{rate: {lan}, delay: {random.choice(["0 ms", "0.1 ms"])}}}
training: {{model: mlp, data: digits, rounds: 1, evaluate_every: 1}}
simulation: {{network: packets}}
timeouts: {{dead_after: 3 h}}
"""),
        "simulate",
    )


class Case:
    """One case. ``compiled``: see ``PacketEngine``."""

    def __init__(self, seed: int, compiled: bool | None) -> None:
        random = self._random = Random(seed)
        plan = _plan(random)
        self._horizon_s = random.choice([1.0, 3.0, 15.0])
        self.clock = Clock()
        self._paths = PathTable(plan, 1.0)
        model = TcpModel(
            congestion_control=random.choice(["reno", "cubic", "cubic", "bbr", "bbr"]),
            unsent_limit_bytes=random.choice([0, 16_384, 131_072]),
            slow_start_after_idle=random.random() < 0.3,
            window_limit_bytes=random.choice([math.inf, math.inf, 60 * 1448.0]),
            initial_window_bytes=1448.0 * random.choice([1, 10, 10, 40]),
        )
        self.log: list[tuple[Any, ...]] = []
        self.connections: dict[tuple[str, str], Any] = {}
        self._begin(plan, model, compiled)
        nodes = [node.name for node in plan.nodes]
        for _ in range(random.randint(1, 6)):
            source, target = random.sample(nodes, 2)
            if (source, target) not in self.connections:
                self._use(source, target)
        for link in self._paths.links:
            if random.random() < 0.3:
                self._let_change(link)

    def _begin(self, plan: Plan, model: TcpModel, compiled: bool | None) -> None:
        self.network = PacketNetwork(self.clock, plan, self._paths, model, compiled)

    def _connect(self, source: str, target: str) -> Any:
        return self.network.connect(source, target, partial(self._write, source, target))

    def _send_datagrams(self, source: str, target: str, count: int) -> None:
        path = self.network.path(source, target)
        deliver = partial(self._write, source, target, "datagrams")
        self.network.engine.send_datagrams(path, [1200] * count, 0, deliver)

    def _write(self, *about: Any) -> None:
        self.log.append((*about, self.clock.now.hex()))

    def _at(self, at_s: float, call: Callable[[], Any]) -> None:
        self.clock.at(at_s, lambda _: call())

    def _use(self, source: str, target: str) -> None:
        random = self._random
        connection = self.connections[source, target] = self._connect(source, target)
        if random.random() < 0.2:
            connection.on_idle = partial(self._write, source, target, "idle")
        at_s = random.random() * 0.2
        for number in range(random.randint(1, 12)):
            size_bytes = random.choice(_SIZES)
            begun = partial(self._write, source, target, number, "begins")
            self._at(at_s, partial(connection.send, size_bytes, random.choice([0, 0, 1]), number, begun))
            at_s += random.choice([0, 0, 0, 1e-5, 0.01, 0.3, self._horizon_s / 4])
        if random.random() < 0.3:
            self._at(at_s / 2, partial(self._send_datagrams, source, target, random.randint(1, 40)))
        stop_s = random.random() * self._horizon_s
        if random.random() < 0.1:
            self._at(stop_s, partial(connection.stop, stop_s + random.random()))
        elif random.random() < 0.05:
            self._at(stop_s, partial(connection.stop, math.inf))

    def _let_change(self, link: WanLink) -> None:
        for _ in range(self._random.randint(1, 4)):
            at_s = self._random.random() * self._horizon_s
            self._at(at_s, partial(self._change, link, *self._random.choice(_CHANGES)))
        self._at(self._horizon_s, partial(self._change, link, "rate", 1e7))
        self._at(self._horizon_s, partial(self._change, link, "state", 1.0))

    def _change(self, link: WanLink, what: str, value: float) -> None:
        passed = link.passes
        link.take(what, value)
        for path in self._paths.crossing(link):
            path.refresh()
        self.network.link_changed(link, what, passed)

    def _finish(self) -> None:
        self._at(_END_S, partial(setattr, self.clock, "stopped", True))
        self.clock.finish()

    def result(self) -> list[Any]:
        self._finish()
        ends = [(connection.at_rest, connection.idle) for connection in self.connections.values()]
        return [self.log, self.network.counters(self._paths.links), ends, self.network.engine.net.steps]


def differing(seeds: range, compiled: bool | None = True) -> list[int]:
    """Return the cases in which compiled code does anything else than Python. ``compiled``: see ``PacketEngine``."""
    return [seed for seed in seeds if Case(seed, False).result() != Case(seed, compiled).result()]


if __name__ == "__main__":
    found = differing(range(1000))
    sys.stdout.write(f"{len(found)} of 1000 cases differ {found or ''}\n")
    sys.exit(bool(found))
