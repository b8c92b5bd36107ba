"""Best-effort messages over the flow network: paced, served after everything reliable, lost in queues and on the way.

A message leaves its sender when nothing waits on the reliable connection, no faster than the pace of the path
(``testbed.best_effort``). It then waits in its channel's queue at the bottleneck, and is lost if that is full. It is
served with what reliable connections leave: the weight of its flow is six orders of magnitude smaller than theirs, and
the lower channel goes first. Links lose each of its datagrams with probability p, so a message of n datagrams arrives
with probability (1 - p)^n.

Not modelled: the handshake of the connection that its keys come from; queues shared with other senders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from testbed.best_effort import BestEffortQueue, datagrams
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows import FlowClass, FlowNetwork
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp import TcpConnection

_WEIGHT = 1e-6  # relative to a reliable connection: practically only residual capacity
_CHANNEL_WEIGHT = 1e-2  # of one channel relative to the one below, where several senders meet


@dataclass(frozen=True, slots=True)
class BestEffortSettings:
    """Settings of one direction between two nodes.

    pace_bps  rate at which its datagrams leave at most
    goodput   bytes of the flow network per byte of Ethernet frame
    random    stream of its own, for losses
    on_flow   called with every flow class that is made
    """

    pace_bps: float
    goodput: float
    random: Random
    on_flow: Callable[[FlowClass, Sequence[int]], None]


@dataclass(slots=True)
class _Item:
    """A message on its way. ``size_bytes`` as the flow network counts them."""

    envelope: Envelope
    size_bytes: float
    datagrams: int


class BestEffort:
    """One direction between two nodes, beside their reliable ``connection``."""

    def __init__(
        self, clock: Clock, network: FlowNetwork, connection: TcpConnection, path: SitePath, links: Sequence[int],
        settings: BestEffortSettings, deliver: Callable[[Envelope], None],
    ) -> None:  # fmt: skip
        self._clock, self._network, self._connection, self._path = clock, network, connection, path
        self._links, self._settings, self._deliver = links, settings, deliver
        self._pace_bytes_per_s = settings.pace_bps / 8 * settings.goodput
        self._queue: BestEffortQueue[_Item] = BestEffortQueue()  # at the sender
        self._flows: dict[int, FlowClass] = {}  # by channel
        self._waiting: dict[int, list[_Item]] = {}  # by channel, at the bottleneck
        self._queued_bytes: dict[int, float] = {}  # by channel, the item in service included
        self._free_s = 0.0  # when the next item may leave
        self._timer = self._serving = False
        self._draining: list[VirtualFuture[None]] = []
        connection.on_idle = self._pump

    def send(self, envelope: Envelope) -> None:
        """Queue a message."""
        count, size_bytes = datagrams(envelope.message)
        item = _Item(envelope, size_bytes * self._settings.goodput, count)
        self._queue.post(item, envelope.message, size_bytes)
        self._pump()

    async def drain(self) -> None:
        """See ``testbed.world.World.drain``."""
        if len(self._queue) or self._clock.now < self._free_s:
            drained: VirtualFuture[None] = VirtualFuture(self._clock)
            self._draining.append(drained)
            await drained

    # ---- the sender ---------------------------------------------------------------------------------------------

    def _pump(self, _: Any = None) -> None:
        if self._timer or self._connection.busy:
            return  # called again by the timer, or when the connection is idle
        if self._clock.now < self._free_s:
            self._timer = True
            self._clock.at(self._free_s, self._on_timer)
            return
        following = self._queue.pop()
        if following is not None:
            item, channel = following
            self._free_s = self._clock.now + item.size_bytes / self._pace_bytes_per_s
            self._enter(item, channel)
            self._pump()
            return
        draining, self._draining = self._draining, []
        for drained in draining:
            drained.set_result(None)

    def _on_timer(self, _: Any) -> None:
        self._timer = False
        self._pump()

    # ---- the bottleneck -----------------------------------------------------------------------------------------

    def _enter(self, item: _Item, channel: int) -> None:
        queued_bytes = self._queued_bytes.get(channel, 0.0)
        if queued_bytes and queued_bytes + item.size_bytes > self._path.queue_bytes * self._settings.goodput:
            return  # the queue is full: lost
        self._queued_bytes[channel] = queued_bytes + item.size_bytes
        self._waiting.setdefault(channel, []).append(item)
        self._serve()

    def _serve(self) -> None:
        if self._serving:
            return
        channel = min((channel for channel, waiting in self._waiting.items() if waiting), default=None)
        if channel is not None:
            self._serving = True
            item = self._waiting[channel].pop(0)
            self._network.start(self._flow(channel), item.size_bytes, lambda: self._on_served(item, channel))

    def _flow(self, channel: int) -> FlowClass:
        if channel not in self._flows:
            weight = self._connection.weight * _WEIGHT * _CHANNEL_WEIGHT ** (channel - 1)
            self._flows[channel] = flow = self._network.flow_class(self._links, weight)
            self._settings.on_flow(flow, self._links)
        return self._flows[channel]

    def _on_served(self, item: _Item, channel: int) -> None:
        self._serving = False
        self._queued_bytes[channel] -= item.size_bytes
        if self._path.loss <= 0 or self._settings.random.random() < (1 - self._path.loss) ** item.datagrams:
            self._clock.at(self._clock.now + self._path.delay_s, lambda _: self._deliver(item.envelope))
        self._serve()
