"""A TCP connection over packets, with the interface of ``testbed.simulation.flow_connection.FlowConnection``.

Messages wait by priority until the process takes a batch of them to write. The socket takes that as long as less than
TCP_NOTSENT_LOWAT waits in it unsent, and wakes its writer when less than half of that does. It looks at this limit only
where it begins a buffer, and fills the one that it has begun (``tcp_sendmsg``). What is taken cannot be overtaken.

A process writes up to a system call's time after it has been given something to send. Without that, connections that
are given the same at the same instant would stay in step, round for round, and lose the same packets. Real ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from testbed.messages import batch_bytes
from testbed.simulation.clock import Clock
from testbed.simulation.handshake import set_up
from testbed.simulation.packets.lan_sender import LanSender
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.packets.sender import TcpSender
from testbed.simulation.paths import SitePath
from testbed.simulation.send_queue import OnStart, SimulatedSendQueue
from testbed.simulation.tcp_model import TcpModel

_WRITE_S = 5e-6  # a system call, at most
_BUFFER_BYTES = 45 * SEGMENT_BYTES  # whole segments in 64 KiB (``tcp_xmit_size_goal``)


class PacketConnection:
    """One direction between two nodes.

    connect()  return the sending end, when the connection has been set up
    random     of the instants of its writes
    """

    __slots__ = (
        "_batch_bytes", "_buffer_bytes", "_clock", "_connect",
        "_item", "_left_bytes", "_limit_bytes", "_path", "_random", "_ready",
        "_sender", "_setup_round_trips", "_stopped_until_s", "_used", "_writing", "on_idle", "on_room", "queue",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        path: SitePath,
        model: TcpModel,
        connect: Callable[[], TcpSender | LanSender],
        random: Random,
    ) -> None:
        self._clock = clock
        self._path = path
        self._connect = connect
        self._random = random
        self.queue = SimulatedSendQueue()  # of messages that have not begun
        # of the message that the socket is taking
        self._left_bytes = 0
        self._item = None
        self._limit_bytes = model.unsent_limit_bytes or math.inf
        self._batch_bytes = batch_bytes(self._limit_bytes)
        self._buffer_bytes = 0  # that fit into the last buffer of the socket
        self._setup_round_trips = model.setup_round_trips
        self._used = self._ready = self._writing = False
        self._stopped_until_s = -math.inf
        self.on_room: Callable[[], None] | None = None  # called when a message has left the queue
        self.on_idle: Callable[[], None] | None = None  # called when nothing is left to send

    @property
    def busy(self) -> bool:
        return bool(self.queue.length or self._left_bytes or (self._ready and self._sender.unsent_bytes))

    @property
    def idle(self) -> bool:
        return self._ready and not self.busy

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be sent or under way, or nothing will get there any more."""
        if not self._ready:
            return not self._used
        return self._sender.gave_up or (self._sender.idle and not self.busy)

    def send(self, size_bytes: float, priority: float, item: Any, on_start: OnStart | None = None) -> None:
        """Queue a message. ``on_start()`` is called when it is the next to be written."""
        if self._is_killed():
            return
        self.queue.push(size_bytes, priority, item, on_start)
        if self._stopped:
            self._clock.at(self._stopped_until_s, self._continue)
        if not self._used:
            self._used = True
            set_up(self._clock, self._path, self._setup_round_trips, self._is_killed, self._on_set_up)
        elif self._ready and not self._writing:
            self._writing = True
            self._clock.at(self._clock.now + _WRITE_S * self._random.random(), self._write)

    def stop(self, until_s: float) -> None:
        """Let the socket take no more until then; infinity: what it has not taken is lost with the process."""
        self._stopped_until_s = max(until_s, self._stopped_until_s)
        if until_s == math.inf:
            self.queue = SimulatedSendQueue()
            self._left_bytes = 0
        elif self.busy:
            self._clock.at(until_s, self._continue)

    @property
    def _stopped(self) -> bool:
        return self._clock.now < self._stopped_until_s

    def _is_killed(self) -> bool:
        return self._stopped_until_s == math.inf

    def _continue(self, _: Any) -> None:
        if self._ready and not self._stopped:
            self._write(None)

    def _on_set_up(self, _: Any) -> None:
        self._sender = self._connect()
        self._sender.on_room = self._on_window
        self._ready = True
        self._write(None)

    def _write(self, _: Any) -> None:
        self._writing = False
        if self._sender.unsent_bytes < self._limit_bytes:
            self._fill()
        self._push()

    def _on_window(self) -> None:
        """The window has room: send what the socket has, and let it take more."""
        self._push()
        if 2 * self._sender.unsent_bytes < self._limit_bytes and (self._left_bytes or self.queue.length):
            self._fill()
            self._push()

    def _push(self) -> None:
        self._sender.push()
        if self.on_idle is not None and not self.busy:
            self.on_idle()

    def _fill(self) -> None:
        """Let the socket take what it has room for."""
        sender = self._sender
        queue = self.queue
        if self._stopped:
            return
        while self._left_bytes or queue.length:
            if not self._left_bytes:
                queue.take_batch(self._batch_bytes)
                self._begin()
            if not self._buffer_bytes or not sender.unsent_bytes:
                if sender.unsent_bytes >= self._limit_bytes:
                    return
                self._buffer_bytes = _BUFFER_BYTES
            size_bytes = min(self._left_bytes, self._buffer_bytes)
            self._left_bytes -= size_bytes
            self._buffer_bytes -= size_bytes
            sender.write(size_bytes, None if self._left_bytes else self._item)
            sender.push(more=True)  # what is written leaves as soon as it is a segment

    def _begin(self) -> None:
        size_bytes, self._item, on_start = self.queue.pop()
        self._left_bytes = math.ceil(size_bytes)
        if on_start is not None:
            on_start()
        if self.on_room is not None:
            self.on_room()
