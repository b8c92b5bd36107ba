"""Best-effort messages in virtual time: paced, served after reliable ones, and lost in queues and on the way.

A message leaves its sender when nothing waits on the reliable connection, and no faster than the pace of the path
(``testbed.best_effort``). A ``FlowCarrier`` or ``PacketCarrier`` takes it to the other node, or loses it.

Over flows, the message then waits in its channel's queue at the bottleneck; if the queue is full, the message is lost.
It gets the capacity that reliable connections leave: the weight of its flow is six orders of magnitude smaller than
theirs. Lower channels go first. Links lose each datagram with probability p, so a message of n datagrams arrives with
probability (1 - p)^n. Messages that leave while the path is down are lost, and so are messages that wait when it goes
down.

Not modelled: queues shared with other senders, and the handshake of the connection that provides the keys.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from testbed.best_effort import BestEffortQueue, datagrams
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows.network import FlowClass, FlowNetwork
from testbed.simulation.paths import SitePath
from testbed.simulation.send_queue import SimulatedConnection

_WEIGHT = 1e-6  # relative to a reliable connection, so that the flow gets hardly more than what is left
_CHANNEL_WEIGHT = 1e-2  # of a channel relative to the next lower one, if several senders meet


@dataclass(slots=True)
class Item:
    """A message on its way. ``size_bytes``: total size of the Ethernet frames of its datagrams."""

    envelope: Envelope
    size_bytes: int
    datagrams: int


class BestEffort:
    """Best-effort messages from one node to another, beside their reliable ``connection``.

    pace_bps              limit of the sending rate, in bits of Ethernet frames per second
    carry(item, channel)  takes a message to the other node
    """

    def __init__(
        self, clock: Clock, connection: SimulatedConnection, pace_bps: float, carry: Callable[[Item, int], None]
    ) -> None:
        self._clock = clock
        self._connection = connection
        self._carry = carry
        self._pace_bytes_per_s = pace_bps / 8
        self._queue: BestEffortQueue[Item] = BestEffortQueue()
        self._free_s = 0.0  # when the next item may leave
        self._timer = False
        self._draining: list[VirtualFuture[None]] = []
        connection.on_idle = self._pump

    def send(self, envelope: Envelope) -> None:
        if self._free_s == math.inf:
            return
        count, size_bytes = datagrams(envelope.message)
        item = Item(envelope, size_bytes, count)
        self._queue.post(item, envelope.message, size_bytes)
        self._pump()

    async def drain(self) -> None:
        if self._free_s < math.inf and (len(self._queue) or self._clock.now < self._free_s):
            drained: VirtualFuture[None] = VirtualFuture(self._clock)
            self._draining.append(drained)
            self._pump()
            await drained

    def stop(self, until_s: float) -> None:
        """Send nothing until ``until_s``, as the process is stopped; infinite: one of the two processes has ended."""
        self._free_s = max(until_s, self._free_s)
        if until_s == math.inf:
            self._queue.clear()
            self._release()

    def _pump(self, _: Any = None) -> None:
        if self._timer or self._connection.busy or self._free_s == math.inf:
            return  # called again by the timer, or when the connection is idle
        if self._clock.now < self._free_s:
            self._timer = True
            self._clock.at(self._free_s, self._on_timer)
            return
        following = self._queue.pop()
        if following is not None:
            item, channel = following
            self._free_s = self._clock.now + item.size_bytes / self._pace_bytes_per_s
            self._carry(item, channel)
            self._pump()
        else:
            self._release()

    def _release(self) -> None:
        draining, self._draining = self._draining, []
        for drained in draining:
            drained.set_result(None)

    def _on_timer(self, _: Any) -> None:
        self._timer = False
        self._pump()


class FlowCarrier:
    """Carries messages over the flow network. ``deliver`` is called with each envelope that arrives.

    beside   the flow class of the reliable connection
    goodput  bytes of the flow network per byte of Ethernet frame
    random   random stream that decides about losses
    """

    def __init__(
        self,
        clock: Clock,
        network: FlowNetwork,
        path: SitePath,
        beside: FlowClass,
        goodput: float,
        random: Random,
        deliver: Callable[[Envelope], None],
    ) -> None:
        self._clock = clock
        self._network = network
        self._path = path
        self._beside = beside
        self._goodput = goodput
        self._random = random
        self._deliver = deliver
        self._flows: dict[int, FlowClass] = {}  # by channel
        self._waiting: dict[int, deque[tuple[Item, int]]] = {}  # by channel: queue of (item, path's outages by then)
        self._queued_bytes: dict[int, float] = {}  # by channel, including the item in service
        self._serving = False

    def carry(self, item: Item, channel: int) -> None:
        """Queue a message at the bottleneck, or lose it there."""
        if not self._path.up:
            return  # lost
        self._lose_waiting(channel)
        queued_bytes = self._queued_bytes.get(channel, 0.0)
        if queued_bytes and queued_bytes + item.size_bytes > self._path.queue_bytes:
            return  # the queue is full: lost
        self._queued_bytes[channel] = queued_bytes + item.size_bytes
        self._waiting[channel].append((item, self._path.outages))
        self._serve()

    def _lose_waiting(self, channel: int) -> None:
        """Drop the messages that waited when the path went down, so that they neither fill the queue nor take time."""
        waiting = self._waiting.setdefault(channel, deque())
        while waiting and waiting[0][1] != self._path.outages:
            self._queued_bytes[channel] -= waiting.popleft()[0].size_bytes

    def _serve(self) -> None:
        if self._serving:
            return
        for channel in sorted(self._waiting):
            self._lose_waiting(channel)
            if self._waiting[channel]:
                self._serving = True
                item, outages = self._waiting[channel].popleft()
                served = partial(self._on_served, item, channel, outages)
                self._network.start(self._flow(channel), item.size_bytes * self._goodput, served)
                return

    def _flow(self, channel: int) -> FlowClass:
        if channel not in self._flows:
            weight = self._beside.record.weight * _WEIGHT * _CHANNEL_WEIGHT ** (channel - 1)
            self._flows[channel] = flow = self._network.flow_class(self._beside.path, weight)
            flow.record.watched = bool(self._path.links)  # the monitor counts bytes that cross the WAN
        return self._flows[channel]

    def _on_served(self, item: Item, channel: int, outages: int) -> None:
        self._serving = False
        self._queued_bytes[channel] -= item.size_bytes
        if outages == self._path.outages and (
            self._path.loss <= 0 or self._random.random() < (1 - self._path.loss) ** item.datagrams
        ):
            self._clock.at(self._clock.now + self._path.delay_s, lambda _: self._deliver(item.envelope))
        self._serve()
