"""A WAN link as the emulator makes it, packet by packet: a rate, drop-tail queues, a delay, random losses.

The rate is that of an HTB class: with a bucket of B bytes (``burst_bytes``) filled at r, a packet leaves as soon as the
bucket is not in debt, and is taken out of it then. So of packets that arrive after silence, those leave at once that
begin in the first B bytes. In terms of time: let z be the instant at which the bucket is empty. A packet of s bytes
leaves at t >= z, and z becomes max(z, t - B/r) + s/r (the generic cell rate algorithm, ITU-T I.371). What waits is not
out yet, so a change of the rate concerns it.

A packet that does not fit into the queue is dropped. There is a queue for each channel, served in strict order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.paths import WanLink


class Packet(msgspec.Struct, eq=False):
    """A frame on its way. ``hops``: the links that are left, the next one last. ``receive(argument)``: at its end."""

    size_bytes: int
    hops: list[PacketLink]
    receive: Callable[[Any], None]
    argument: Any
    channel: int = 0


class PacketLink:
    """One direction. ``channels``: best-effort channels beside the reliable one (0), which precedes them.

    ``state`` is the link's, which others change; ``changed`` takes note of it.

    sent_bytes       of frames that have left
    dropped_packets  by full queues
    lost_packets     on the way, at random or because the link is down
    backlog_bytes    in all queues
    """

    __slots__ = (
        "_burst_s", "_channel_bytes", "_clock", "_empty_s", "_last_arrival_s", "_limit_bytes", "_queues", "_random",
        "_seconds_per_byte", "_timer_s", "dropped_packets", "lost_packets", "sent_bytes", "state",
    )  # fmt: skip

    def __init__(self, clock: Clock, state: WanLink, random: Random, channels: int = 0) -> None:
        self._clock = clock
        self.state = state
        self._random = random
        self._limit_bytes = max(state.plan.queue_bytes, FRAME_BYTES)  # of each queue
        self._queues: tuple[deque[Packet], ...] = tuple(deque() for _ in range(channels + 1))
        self._channel_bytes = [0] * (channels + 1)
        self._empty_s = self._last_arrival_s = -math.inf
        self._seconds_per_byte = self._burst_s = 0.0
        self._timer_s = math.inf  # of the next look at the queues
        self.sent_bytes = self.dropped_packets = self.lost_packets = 0
        self.changed()

    @property
    def backlog_bytes(self) -> int:
        return sum(self._channel_bytes)

    def changed(self) -> None:
        """Follow the link's rate; nothing leaves while that is 0. One that is down sends on, and loses all."""
        rate_bps = self.state.left_bps
        self._seconds_per_byte = 8 / rate_bps if rate_bps > 0 else math.inf
        self._burst_s = burst_bytes(rate_bps) * self._seconds_per_byte if rate_bps > 0 else 0.0
        if self.backlog_bytes:
            self._serve()

    def arrive(self, packet: Packet) -> None:
        """Take a packet: send it, queue it, or drop it."""
        channel = packet.channel
        size_bytes = packet.size_bytes
        if self._empty_s <= self._clock.now and self._seconds_per_byte < math.inf and not self.backlog_bytes:
            self._send(packet)
        elif self._channel_bytes[channel] + size_bytes <= self._limit_bytes:
            self._queues[channel].append(packet)
            self._channel_bytes[channel] += size_bytes
            self._look_later()
        else:
            self.dropped_packets += 1

    def _look_later(self) -> None:
        at_s = self._empty_s
        if at_s < self._timer_s and self._seconds_per_byte < math.inf:
            self._timer_s = at_s
            self._clock.at(at_s, self._on_timer, at_s)

    def _on_timer(self, at_s: float) -> None:
        if at_s == self._timer_s:
            self._timer_s = math.inf
            self._serve()

    def _serve(self) -> None:
        """Send what the bucket lets pass."""
        now = self._clock.now
        for channel, queue in enumerate(self._queues):
            while queue and self._empty_s <= now and self._seconds_per_byte < math.inf:
                packet = queue.popleft()
                self._channel_bytes[channel] -= packet.size_bytes
                self._send(packet)
            if queue:
                return self._look_later()
        return None

    def _send(self, packet: Packet) -> None:
        now = self._clock.now
        self._empty_s = max(self._empty_s, now - self._burst_s) + packet.size_bytes * self._seconds_per_byte
        self.sent_bytes += packet.size_bytes
        state = self.state
        if (state.loss or state.corruption or not state.up) and self._random.random() < state.lost:
            self.lost_packets += 1
            return
        self._last_arrival_s = max(self._last_arrival_s, now + state.delay_s)  # none overtakes another
        hops = packet.hops
        if hops:
            self._clock.at(self._last_arrival_s, hops.pop().arrive, packet)
        else:
            self._clock.at(self._last_arrival_s, packet.receive, packet.argument)


class PacketPort:
    """The port of a node on its LAN, in one direction. Packets are never dropped here."""

    __slots__ = ("_burst_s", "_empty_s", "_seconds_per_byte")

    def __init__(self, rate_bps: float) -> None:
        self._seconds_per_byte = 8 / rate_bps
        self._burst_s = burst_bytes(rate_bps) * self._seconds_per_byte
        self._empty_s = -math.inf

    def leaves_s(self, now_s: float, size_bytes: int) -> float:
        """Return when a packet leaves that arrives now."""
        at_s = max(now_s, self._empty_s)
        self._empty_s = max(self._empty_s, at_s - self._burst_s) + size_bytes * self._seconds_per_byte
        return at_s


class PacketPath:
    """The way of packets from one node to another. ``ports``: of the sender and of the receiver. A LAN has no links."""

    __slots__ = ("_clock", "_lan_delay_s", "_links", "_ports")

    def __init__(
        self, clock: Clock, links: tuple[PacketLink, ...], ports: tuple[PacketPort, PacketPort], lan_delay_s: float
    ) -> None:
        self._clock = clock
        self._ports = ports
        self._lan_delay_s = lan_delay_s
        self._links = links[::-1]

    def send(self, size_bytes: int, receive: Callable[[Any], None], argument: Any, channel: int = 0) -> float:
        """Send a frame; at the other end, call ``receive(argument)``. Return when it leaves the sender's port."""
        hops = list(self._links)
        now = self._clock.now
        arrival = (size_bytes, receive, argument)
        arrive: Callable[[Any], None] = hops.pop().arrive if hops else self._received
        packet = Packet(size_bytes, hops, self._received, arrival, channel) if self._links else arrival
        leaves_s = self._ports[0].leaves_s(now, size_bytes)
        at_s = leaves_s + self._lan_delay_s
        if at_s > now or not self._links:
            # On a LAN without a delay, too: what arrives makes its connection send again, and would recurse.
            self._clock.at(at_s, arrive, packet)
        else:
            arrive(packet)
        return leaves_s

    def _received(self, arrival: tuple[int, Callable[[Any], None], Any]) -> None:
        size_bytes, receive, argument = arrival
        at_s = self._ports[1].leaves_s(self._clock.now, size_bytes)
        if at_s > self._clock.now:
            self._clock.at(at_s, receive, argument)
        else:
            receive(argument)


class HostQueue:
    """What one connection has waiting at its node's port (TCP small queues; Linux: ``tcp_small_queue_check``).

    The limit is of each connection, not of the port: those of a node that send at once take turns there, burst by
    burst.
    """

    __slots__ = ("_clock", "_frames", "_path", "_waiting_bytes", "_waits")

    def __init__(self, clock: Clock, path: PacketPath) -> None:
        self._clock = clock
        self._path = path
        self._frames: deque[tuple[float, int]] = deque()  # that have not left: when each will, and its bytes
        self._waiting_bytes = 0
        self._waits = False

    @property
    def empty(self) -> bool:
        self._forget_left()
        return not self._frames

    def send(self, size_bytes: int, receive: Callable[[Any], None], argument: Any) -> None:
        leaves_s = self._path.send(size_bytes, receive, argument)
        if leaves_s > self._clock.now:
            self._frames.append((leaves_s, size_bytes))
            self._waiting_bytes += size_bytes

    def is_full(self, limit_bytes: float, on_room: Callable[[], None]) -> bool:
        """Whether at least so much waits; then ``on_room()`` follows when less does."""
        if not self._waits:
            self._forget_left()
            room_s = -1.0
            waiting_bytes = self._waiting_bytes
            for leaves_s, size_bytes in self._frames:
                if waiting_bytes < limit_bytes:
                    break
                room_s, waiting_bytes = leaves_s, waiting_bytes - size_bytes
            self._waits = room_s > self._clock.now
            if self._waits:
                self._clock.at(room_s, self._on_room, on_room)
        return self._waits

    def _on_room(self, on_room: Callable[[], None]) -> None:
        self._waits = False
        on_room()

    def _forget_left(self) -> None:
        frames = self._frames
        now = self._clock.now
        while frames and frames[0][0] <= now:
            self._waiting_bytes -= frames.popleft()[1]
