"""Best-effort messages over the flow network: paced, below everything reliable, lost in queues and on the way.

A message leaves its sender when nothing waits on the reliable connection, no faster than the pace of the path
(``testbed.best_effort``). Then it stands in the bottleneck's queue of its channel, and is lost when that is full. It is
served with what the reliable connections leave: its flow's weight is smaller than theirs by six orders of magnitude,
and the lower channel goes first. On the way it is lost with the links' loss, which strikes each of its datagrams.

Left out: the handshake of the connection that its keys come from, queues shared with other senders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from testbed.best_effort import BestEffortQueue, datagrams
from testbed.messages import Message
from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowClass, FlowNetwork
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp import TcpConnection

_WEIGHT = 1e-6
_CHANNEL_WEIGHT = 1e-2  # from one channel to the next, where several senders meet


class Deliverable(Protocol):
    """What is delivered: something with a message in it."""

    message: Message


class _OnTheWay:
    """A message that has left its sender. ``size`` in bytes as the flow network counts them."""

    __slots__ = ("letter", "pieces", "size")

    def __init__(self, letter: Any, size: float, pieces: int) -> None:
        self.letter, self.size, self.pieces = letter, size, pieces


class BestEffort:
    """One direction between two nodes, beside their reliable ``connection``.

    ``goodput``: bytes of the flow network per byte of Ethernet frame. ``on_flow`` is told of every flow that is made.
    """

    def __init__(
        self, clock: Clock, network: FlowNetwork, connection: TcpConnection, path: SitePath, links: Sequence[int],
        setting: Setting, deliver: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self._clock, self._network, self._connection, self._path = clock, network, connection, path
        self._links, self._setting, self._deliver = links, setting, deliver
        self._queue: BestEffortQueue[_OnTheWay] = BestEffortQueue()
        self._flows: dict[int, FlowClass] = {}
        self._bands: dict[int, list[_OnTheWay]] = {}
        self._held: dict[int, float] = {}  # bytes in each band, the one in service included
        self._free_s = 0.0  # when the next may leave
        self._timer = self._serving = False
        connection.on_idle = self._pump

    def send(self, letter: Deliverable) -> None:
        """Queue a message."""
        count, size_bytes = datagrams(letter.message)
        item = _OnTheWay(letter, size_bytes * self._setting.goodput, count)
        self._queue.post(item, letter.message, size_bytes)
        self._pump()

    # ---- the sender ---------------------------------------------------------------------------------------------

    def _pump(self, _: Any = None) -> None:
        if self._timer or self._connection.busy:
            return  # it calls again
        if self._clock.now < self._free_s:
            self._timer = True
            self._clock.at(self._free_s, self._on_timer)
            return
        following = self._queue.pop()
        if following is not None:
            item, channel = following
            self._free_s = self._clock.now + item.size / self._setting.pace_bytes_per_s
            self._enter(item, channel)
            self._pump()

    def _on_timer(self, _: Any) -> None:
        self._timer = False
        self._pump()

    # ---- the bottleneck -----------------------------------------------------------------------------------------

    def _enter(self, item: _OnTheWay, channel: int) -> None:
        held = self._held.get(channel, 0.0)
        if held and held + item.size > self._path.queue_bytes * self._setting.goodput:
            return  # the queue is full
        self._held[channel] = held + item.size
        self._bands.setdefault(channel, []).append(item)
        self._serve()

    def _serve(self) -> None:
        if self._serving:
            return
        channel = min((channel for channel, waiting in self._bands.items() if waiting), default=None)
        if channel is not None:
            self._serving = True
            item = self._bands[channel].pop(0)
            self._network.start(self._flow(channel), item.size, lambda: self._on_served(item, channel))

    def _flow(self, channel: int) -> FlowClass:
        if channel not in self._flows:
            weight = self._connection.weight * _WEIGHT * _CHANNEL_WEIGHT ** (channel - 1)
            self._flows[channel] = flow = self._network.flow_class(self._links, weight)
            self._setting.on_flow(flow, self._links)
        return self._flows[channel]

    def _on_served(self, item: _OnTheWay, channel: int) -> None:
        self._serving = False
        self._held[channel] -= item.size
        if self._path.loss <= 0 or self._setting.chance.random() < (1 - self._path.loss) ** item.pieces:
            self._clock.at(self._clock.now + self._path.delay_s, lambda _: self._deliver(item.letter))
        self._serve()


class Setting:
    """What a ``BestEffort`` is given beside the network: pace, frame share, and a random stream of its own."""

    def __init__(
        self, pace_bps: float, goodput: float, chance: Random, on_flow: Callable[[FlowClass, Sequence[int]], None]
    ) -> None:
        self.pace_bytes_per_s = pace_bps / 8 * goodput
        self.goodput, self.chance, self.on_flow = goodput, chance, on_flow
