"""A phase of a private LAN: what a crew sends its server is foreseen at once, while nobody else uses the server's port.

The members' flows share that port with each other alone, so when each of them ends is known when the first one starts:
``kernels.play``, which is the flow network's own solver on a network of one link. One event is left, the last arrival,
where there would be four for each member. As soon as anybody else starts a flow into the port, the phase gives way:
what has not ended goes on as flows of the network, from where it is (``tests/simulation/test_phase.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from testbed.plan.model import Plan
from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowNetwork, ReservableLink
from testbed.simulation.layout import FlowArrivals
from testbed.simulation.paths import PathTable
from testbed.simulation.tcp import TcpConnection


class Receiver(Protocol):
    """What of a world is used."""

    phase: PredictedTransfer | None

    def deliver(self, letter: Any, copies: int = 1) -> None: ...
    def part_came(self, letter: Any, copies: int, at_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerPath:
    """From a crew to their server. ``port``: its own, if it may be kept."""

    network: FlowNetwork
    target: Receiver
    port: ReservableLink | None = None
    delay_s: float = 0.0


# Begin, number, size of each, how many alike, and over what: what some members send.
Part = tuple[float, int, float, int, TcpConnection]


class PredictedTransfer:
    """One letter in several parts. It keeps the port from now until the last part has arrived, or until it gives way.

    What others send at this very instant is seen as well, for nothing is foreseen before the instant's end.
    """

    __slots__ = ("_arrivals", "_clock", "_come", "_letter", "_parts", "_port", "_priority", "_way")

    def __init__(
        self, clock: Clock, way: ServerPath, port: ReservableLink, parts: list[Part], priority: float, letter: Any
    ) -> None:
        self._clock, self._way, self._port = clock, way, port
        self._parts, self._priority, self._letter = sorted(parts), priority, letter
        self._arrivals: list[tuple[float, int]] = []  # when, and how many alike
        self._come = 0  # of these, those that the receiver has been told of
        port.give_way, way.target.phase = self.give_way, self
        clock.at_end_of_instant(self._foresee)

    def _foresee(self, _: Any) -> None:
        if self._way.target.phase is not self:
            return
        starts, _ended = self._play(math.inf)
        delay_s = self._way.delay_s
        self._arrivals = [(starts.end[i] + delay_s, self._parts[i][3]) for i in starts.order]
        self._clock.at(self._arrivals[-1][0], self._finish)

    def _play(self, until_s: float) -> tuple[FlowArrivals, int]:
        parts = self._parts
        starts = FlowArrivals(
            [part[0] for part in parts], [part[2] for part in parts], [float(part[3]) for part in parts],
            [math.inf] * len(parts), [0] * len(parts),
        )  # fmt: skip
        return self._way.network.alone(parts[0][4].flow, len(parts)).play(starts, until_s)

    def _finish(self, _: Any) -> None:
        if self._way.target.phase is not self:
            return
        self._end()
        for _begin_s, _number, size_bytes, copies, connection in self._parts:
            connection.flow.delivered += size_bytes * copies
        self._way.target.deliver(self._letter, self._arrivals[-1][1])

    def _end(self) -> None:
        self.catch_up()
        self._port.give_way = self._way.target.phase = None

    def catch_up(self) -> None:
        """Tell the receiver of the parts that are there by now, but of the last, which has an event of its own."""
        arrivals, now = self._arrivals, self._clock.now
        while self._come < len(arrivals) - 1 and arrivals[self._come][0] <= now:
            at_s, copies = arrivals[self._come]
            self._way.target.part_came(self._letter, copies, at_s)
            self._come += 1

    def give_way(self) -> None:
        """Somebody else is about to use the port: what has not ended goes on as flows."""
        self._end()
        starts, ended = self._play(self._clock.now)
        for at_s, copies in self._arrivals[self._come : ended]:
            self._clock.at(at_s, partial(self._deliver, copies))
        for i, (begin_s, _number, size_bytes, copies, connection) in enumerate(self._parts):
            connection.flow.delivered += (size_bytes - starts.left[i]) * copies
            if starts.end[i] == math.inf:
                start(self._clock, begin_s, connection, (starts.left[i], self._priority, self._letter))

    def _deliver(self, copies: int, _: Any) -> None:
        self._way.target.deliver(self._letter, copies)


def ports_of(crews: Iterable[str], plan: Plan, paths: PathTable, network: FlowNetwork) -> dict[int, ReservableLink]:
    """The ports, by link, into which crews send inside a LAN."""
    links = set()
    for name in crews:
        for parent in plan.node(name).parents:
            path, numbers = paths.between(name, parent)
            if path.tier == "lan":
                links.add(numbers[-1])
    return {link: network.port(link) for link in sorted(links)}


def start(clock: Clock, begin_s: float, connection: TcpConnection, what: tuple[float, float, Any]) -> None:
    """Send (size, priority, letter) over a connection, now or later."""
    if begin_s <= clock.now:
        connection.send(*what)
    else:
        clock.at(begin_s, lambda _: connection.send(*what))
