"""A TCP connection over packets, with the interface of ``testbed.simulation.flows.connection.FlowConnection``.

Messages wait by priority until the ``socket`` needs the next one; then the process takes a batch of them to write. No
other message overtakes this batch.

A process writes after a random delay of up to a system call's time. Without this delay, connections that send equal
messages from the same instant on would stay in step in every round and lose the same packets, unlike real ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from testbed.messages import batch_bytes
from testbed.plan.model import OFFLOADED_LAN_BPS
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.congestion import BBR, CUBIC, RENO
from testbed.simulation.packets.dispatch import OPEN, WRITE_LATER, WRITE_NOW
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.packets.handshake import Handshake
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.packets.timers import begin_round_trips, is_hopeless, observe_round_trip
from testbed.simulation.paths import SitePath
from testbed.simulation.send_queue import OnStart, SimulatedConnection, SimulatedSendQueue
from testbed.simulation.tcp_model import TcpModel

_WRITE_S = 5e-6  # longest time of a system call
_OFFLOADED_SEGMENTS = 65_536 // SEGMENT_BYTES
_MOST_BUFFER_BYTES = 1 << 40  # unlimited: ``limit`` follows from the plan's buffers instead
_CONTROLS = {"reno": RENO, "bbr": BBR}  # others are CUBIC


class PacketConnection(SimulatedConnection):
    """One direction between two nodes.

    paths    numbers of the engine's paths there and back
    name     seeds its random streams: delays of its writes, which segments its receiver reads soon, and BBR's cycles
    deliver  called with each message that arrives
    lan_bps  rate of the ports if both nodes are in one data centre; 0: the connection crosses the WAN
    """

    def __init__(
        self,
        engine: PacketEngine,
        path: SitePath,
        paths: tuple[int, int],
        model: TcpModel,
        name: str,
        deliver: Callable[[Any], None],
        lan_bps: float = 0.0,
    ) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._deliver = deliver
        self._random = Random(f"{name}/writes")
        self.queue = SimulatedSendQueue()  # messages that the socket has not taken
        limit_bytes = model.unsent_limit_bytes or math.inf
        self._batch_bytes = batch_bytes(limit_bytes)
        self._used = False
        self._taken_bytes = 0  # end of the last message that the socket has taken, as a position in the stream
        self._arriving: deque[tuple[int, Any]] = deque()  # messages that have yet to arrive, with their ends
        self._number = engine.add_connection(self)
        it = self.record
        it.path, it.back = paths
        it.unsent_limit_bytes = limit_bytes
        it.stopped_until_s = -math.inf
        it.chance = Random(f"{name}/reads").getrandbits(16)
        it.frame_head = NONE
        it.is_lan = lan_bps > 0
        if lan_bps:
            it.lan_segments = _OFFLOADED_SEGMENTS if lan_bps >= OFFLOADED_LAN_BPS else 1
            it.lan_window_bytes = model.initial_window_bytes + model.setup_segments * SEGMENT_BYTES
            it.grows_unused = not model.loss_based  # BBR's window grows even if it limits nothing (``bbr_set_cwnd``)
        else:
            it.control = _CONTROLS.get(model.congestion_control, CUBIC)
            it.first_window = int(model.initial_window_bytes / SEGMENT_BYTES)
            it.setup_segments = model.setup_segments
            it.limit = model.window_limit_bytes / SEGMENT_BYTES
            it.most_buffer_bytes = _MOST_BUFFER_BYTES
            it.restarts = model.slow_start_after_idle and model.loss_based
            if it.control == BBR:
                it.generator = engine.add_generator(Random(f"{name}/cycles"))
        engine.keep_room(int(model.initial_window_bytes / SEGMENT_BYTES) + model.setup_segments)

    @property
    def record(self) -> Any:
        """See ``records.Connection``."""
        return self._engine.machine.connections[self._number]

    @property
    def busy(self) -> bool:
        it = self.record
        return bool(self.queue.length or it.left_bytes or it.unsent_bytes)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is waiting or under way, or TCP has given up."""
        it = self.record
        if not it.is_open:
            return not self._used
        if it.is_lan:
            return not it.under_way_bytes and not self.busy
        return is_hopeless(it) or (it.following == it.first and not self.busy)

    @property
    def waiting_bytes(self) -> float:
        return self.queue.size_bytes

    def drop_messages(self) -> None:
        self.queue.clear()

    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        if self._is_killed():
            return
        self.queue.push(size_bytes, priority, item, on_start)
        it = self.record
        it.waiting = self.queue.length
        if self._clock.now < self._stopped_until_s:
            self._clock.at(self._stopped_until_s, self._continue)
        if not self._used:
            self._used = True
            it = self.record
            Handshake(self._engine, (it.path, it.back), self._is_killed, self._on_set_up)
        elif it.is_open and not it.is_writing:
            at_s = self._clock.now + _WRITE_S * self._random.random()
            self._engine.call(WRITE_LATER, self._number, time_s=at_s)

    def stop(self, until_s: float) -> None:
        self._stopped_until_s = max(until_s, self._stopped_until_s)
        it = self.record
        it.stopped_until_s = self._stopped_until_s
        if until_s == math.inf:
            self.queue = SimulatedSendQueue()
            it.waiting = 0
            if it.left_bytes:
                it.left_bytes = 0
                self._arriving.pop()
                self._tell_next_end()
        elif self.busy:
            self._clock.at(until_s, self._continue)

    def _continue(self, _: Any) -> None:
        if self.record.is_open and self._clock.now >= self._stopped_until_s:
            self._engine.call(WRITE_NOW, self._number)

    def _on_set_up(self, round_trips_s: list[float]) -> None:
        it = self.record
        it.rtt_s = round_trips_s[0]
        begin_round_trips(it, it.rtt_s)
        for rtt_s in round_trips_s[1:]:
            observe_round_trip(it, rtt_s)
        self._engine.call(OPEN, self._number)

    # ---- called by the engine: see ``engine.Socket`` ------------------------------------------------------------

    def take_message(self) -> None:
        """Let the socket take the next message."""
        it = self.record
        self.queue.take_batch(self._batch_bytes)
        if not self.queue.length:  # the waiting messages were dropped
            it.waiting = 0
            return
        size_bytes, item, on_start = self.queue.pop()
        it.left_bytes = math.ceil(size_bytes)
        it.waiting = self.queue.length
        self._taken_bytes += it.left_bytes
        self._arriving.append((self._taken_bytes, item))
        if len(self._arriving) == 1:
            it.message_ends_bytes = self._taken_bytes
        if on_start is not None:
            on_start()
        if self.on_room is not None:
            self.on_room()

    def deliver(self) -> None:
        """Deliver the messages that have arrived completely."""
        received_bytes = self.record.received_bytes
        while self._arriving and self._arriving[0][0] <= received_bytes:
            _, item = self._arriving.popleft()
            self._tell_next_end()
            self._deliver(item)

    def _tell_next_end(self) -> None:
        self.record.message_ends_bytes = self._arriving[0][0] if self._arriving else math.inf

    def tell_idle(self) -> None:
        if self._on_idle is not None:
            self._on_idle()
