"""Best-effort channels of one node: one UDP socket per peer and channel for sending, and one for receiving.

A datagram fits into one packet (``IP_PMTUDISC_DO`` forbids fragmentation on the way). The socket of a channel sets the
precedence bits by which bottlenecks serve channels in order. Messages leave only while no bytes wait on the reliable
connection to the peer, neither in its queue nor unsent in the kernel (SIOCOUTQNSD). A token bucket paces them:

    budget(t + dt) = min(budget(t) + pace dt, pace BURST_S);  a datagram may leave while the budget is positive

The pace is slightly below the path's planned rate (``testbed.best_effort.pace_bps``), so that datagrams do not fill the
bottleneck's queue. Segmentation offload (UDP_SEGMENT) is not used: an emulated loss would drop a whole batch.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
import struct
from collections.abc import Callable, Iterator

from testbed.best_effort import (
    FRAME_OVERHEAD_BYTES,
    QUEUE_LIMIT_BYTES,
    TOO_MUCH,
    BestEffortQueue,
    framed_bytes,
    pace_bps,
    piece_count,
    type_of_service,
)
from testbed.errors import RunFailed
from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.realtime.auth import Keys
from testbed.realtime.connection import Connection
from testbed.realtime.frames import Arrival
from testbed.realtime.sockets import Address, address_text
from testbed.realtime.udp_wire import Packer, Unpacker, body_of

POLL_S = 0.001  # time between two checks of the reliable connection; about the resolution of the loop's timers
BURST_S = 0.01  # a sender may send this many seconds of its pace at once, to catch up after a late timer on a busy host
# Datagrams per turn of the event loop: few enough that TCP connections get their turn within 2 ms, and enough that,
# after this process was held up, the blocks that were sent before a push are read before the push.
_READ_AT_ONCE = 256
_BUFFER_BYTES = 65_536
_RECEIVE_BYTES = 8 << 20
_SO_RCVBUFFORCE = 33
# linux/sock_diag.h
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2
_SIOCOUTQNSD = 0x894B  # linux/sockios.h: bytes in a TCP socket that have not been sent once


class Udp:
    """See the module's docstring. ``address``: the address of this node's TCP listener; UDP uses the same port."""

    def __init__(
        self,
        plan: Plan,
        node: str,
        address: Address,
        deliver: Callable[[Arrival], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._plan = plan
        self._node = node
        self._address = address
        self._deliver = deliver
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._unpacker = Unpacker(plan.transport.mac)
        self._senders: dict[str, Sender] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._socket = _bound(address)
        self.resume_reading()

    # ---- sending ------------------------------------------------------------------------------------------------

    def send(self, to: str, address: Address, message: Message) -> None:
        sender = self._senders.get(to)
        if sender is None:
            pace = pace_bps(self._plan, self._node, to)
            channels = self._plan.transport.best_effort_channels
            sender = Sender(self._address[0], address, channels, pace, self._plan.transport.mac, self._fail)
            self._senders[to] = sender
        sender.post(message)

    async def drain(self, to: str) -> None:
        if to in self._senders:
            await self._senders[to].drain()

    def connected(self, to: str, connection: Connection, keys: Keys) -> None:
        """Begin to send: the reliable connection to ``to`` is open, and its keys are known."""
        if to in self._senders:
            self._senders[to].begin(connection, keys)

    def lost(self, peer: str) -> None:
        """Drop the messages queued for a lost peer, which may come back with another connection."""
        if peer in self._senders:
            self._senders[peer].lost()

    # ---- receiving ----------------------------------------------------------------------------------------------

    def expect(self, peer: str, keys: Keys) -> None:
        """Accept datagrams from ``peer``, which has opened its reliable connection to this node."""
        self._unpacker.expect(peer, keys)

    def resume_reading(self) -> None:
        self._loop.add_reader(self._socket, self._on_readable)

    def pause_reading(self) -> None:
        """Leave arriving datagrams in the kernel, which drops them when its buffer is full."""
        self._loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        try:
            for _ in range(_READ_AT_ONCE):
                arrival = self._unpacker.take(self._buffer[: self._socket.recv_into(self._buffer)])
                if arrival is not None:
                    self._deliver(arrival)
        except BlockingIOError:
            pass

    # ---- the end ------------------------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Yield warnings about messages and datagrams that this host dropped, not the network."""
        # Messages dropped because they were too old are not counted: best effort drops them in simulations as well.
        unsent = sum(sender.queue.dropped[TOO_MUCH] for sender in self._senders.values())
        if unsent:
            yield f"{unsent} best-effort messages were never sent, as more than {QUEUE_LIMIT_BYTES} bytes were queued"
        drops = struct.unpack_from("=9I", self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64))[_MEMINFO_DROPS]
        if drops:
            yield f"{drops} datagrams were lost in this machine's receive buffer, not in the network"
        for reason, count in self._unpacker.refused.items():
            yield f"refused {count} datagrams {reason}"

    def close(self) -> None:
        self.pause_reading()
        self._socket.close()
        for sender in self._senders.values():
            sender.close()


class Sender:
    """Best-effort messages to one peer."""

    def __init__(
        self, source: str, target: Address, channels: int, pace: float, mac: str, fail: Callable[[BaseException], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._target = target
        self._channels = channels
        self._mac = mac
        self._pace_bytes_per_s = pace / 8
        self._fail = fail
        self.queue: BestEffortQueue[bytes] = BestEffortQueue()
        self._sockets: dict[int, socket.socket] = {}
        self._budget_bytes = 0.0
        self._budget_at_s = self._loop.time()
        self._free_s = 0.0  # when a sender at exactly the pace would have finished all datagrams sent so far
        self._draining: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []  # remaining datagrams of the current message, the next one last
        self._out_channel = 0
        self._connection: Connection | None = None

    def post(self, message: Message) -> None:
        assert 0 < message.channel <= self._channels, f"channel {message.channel} of {self._channels}"
        body = body_of(message)
        self.queue.post(body, message, framed_bytes(len(body), piece_count(len(body))))
        self._wake(0.0)

    async def drain(self) -> None:
        """See ``testbed.world.World.drain``."""
        if self._out or len(self.queue) or self._loop.time() < self._free_s:
            drained = self._loop.create_future()
            self._draining.append(drained)
            self._wake(0.0)
            await drained

    def begin(self, connection: Connection, keys: Keys) -> None:
        """Send from now on, as the peer can now verify datagrams with ``keys``."""
        if self._connection is not connection:
            self._connection = connection
            self._packer = Packer(keys, self._mac)
            self._wake(0.0)

    def lost(self) -> None:
        """Drop queued messages, and send nothing until ``begin`` is called again."""
        self.queue.clear()
        self._out.clear()
        self._connection = None
        self._free_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drained()

    def _wake(self, after_s: float) -> None:
        if self._timer is None and self._connection is not None:
            self._timer = self._loop.call_later(after_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._pump()
        except (OSError, RunFailed) as error:
            self._fail(error)

    def _pump(self) -> None:
        assert self._connection is not None
        if self._connection.closed.done():
            self.queue.clear()
            self._out.clear()
            return self._drained()
        self._earn()
        while self._out or self._next():
            if _unsent(self._connection):
                return self._wake(POLL_S)
            if self._budget_bytes <= 0:
                return self._wake(max(POLL_S, -self._budget_bytes / self._pace_bytes_per_s))
            if not self._send():
                return self._wake(POLL_S)
        left_s = self._free_s - self._loop.time()
        if self._draining and left_s > 0:
            return self._wake(left_s)
        return self._drained()

    def _drained(self) -> None:
        draining, self._draining = self._draining, []
        for each in draining:
            if not each.done():  # its task may have been cancelled
                each.set_result(None)

    def _earn(self) -> None:
        now_s = self._loop.time()
        earned = (now_s - self._budget_at_s) * self._pace_bytes_per_s
        self._budget_at_s = now_s
        self._budget_bytes = min(self._budget_bytes + earned, self._pace_bytes_per_s * BURST_S)

    def _next(self) -> bool:
        following = self.queue.pop()
        if following is None:
            return False
        body, self._out_channel = following
        self._out = list(self._packer.datagrams(body, self._out_channel))[::-1]
        return True

    def _send(self) -> bool:
        """Send one datagram; return False if the kernel has no room for it."""
        data = self._out[-1]
        try:
            self._socket(self._out_channel).send(data)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise RunFailed(f"the way to {address_text(self._target)} takes no packets of 1500 bytes") from error
            if error.errno not in (errno.ECONNREFUSED, errno.ENOBUFS):  # the peer has ended, or a device queue is full
                raise
        self._out.pop()
        frame_bytes = len(data) + FRAME_OVERHEAD_BYTES
        self._budget_bytes -= frame_bytes
        self._free_s = max(self._free_s, self._loop.time()) + frame_bytes / self._pace_bytes_per_s
        return True

    def _socket(self, channel: int) -> socket.socket:
        if channel not in self._sockets:
            self._sockets[channel] = _marked(self._source, self._target, type_of_service(channel, self._channels))
        return self._sockets[channel]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._sockets.values():
            sock.close()


def _unsent(connection: Connection) -> bool:
    """Return whether any bytes wait on the reliable connection, in its queue or unsent in the kernel."""
    return connection.sending or struct.unpack("i", fcntl.ioctl(connection.fileno(), _SIOCOUTQNSD, b"\0" * 4))[0] > 0


def _marked(source: str, target: Address, tos: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # see _bound
    sock.bind((source, 0))
    sock.connect(target)
    return sock


def _bound(address: Address) -> socket.socket:
    """Return the receiving socket, with a buffer of up to 8 MiB. Raise ``RunFailed`` if the port is taken.

    On loopback its port is that of the node's TCP listener, so no other node receives there. But the kernel may have
    given the same port to a sending UDP socket of any run. Both may have the port, as both set SO_REUSEADDR; and as the
    sending socket is connected, it does not get datagrams for this node.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    except PermissionError:  # the kernel may then limit the buffer; ``problems`` reports an overflow
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise RunFailed(f"cannot receive datagrams on {address_text(address)}: {error.strerror}") from error
    return sock
