"""All connections of one node: whom it calls, who may call it, and when it may leave.

One data connection per ordered pair of nodes, opened by the sender when it first has something to say; so start order
does not matter. One heartbeat connection per node, to the monitor (``testbed.realtime.heartbeat``).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.errors import RunFailed
from testbed.messages import Message, encode_header
from testbed.plan.fault_clock import expendable, late_comers
from testbed.plan.model import Plan, monitor_of
from testbed.realtime.auth import (
    HANDSHAKE_LIMIT_S,
    Credentials,
    HandshakeRefused,
    HandshakeResult,
    Hello,
    Keys,
    accept,
    initiate,
)
from testbed.realtime.connection import Connection
from testbed.realtime.frames import HEARTBEAT, Arrival
from testbed.realtime.heartbeat import Liveness, error_of_loss
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.sockets import Address, address_text, configure, limit_buffers, new_socket
from testbed.realtime.tls import Stream, shake_hands
from testbed.realtime.udp import Udp
from testbed.realtime.udp_wire import Datagrams

DATA, BEAT = "data", "heartbeat"
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.02, 0.5
_CONNECT_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds on memory and strangers.

    max_body_bytes  of one message
    queue_bytes     queued for one peer before ``send`` waits
    inbox_bytes     received, not yet taken by the role, before this node stops reading from its sockets
    handshakes      at one time
    """

    max_body_bytes: int = 1 << 30
    queue_bytes: int = 64 << 20
    inbox_bytes: int = 1 << 30
    handshakes: int = 256


class NetworkOwner(Protocol):
    """What a network tells the world that it belongs to."""

    def deliver(self, message: Message, overhead_bytes: int) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def warn(self, message: str) -> None: ...
    def lost(self, peer: str, why: str) -> None: ...


class Network:
    """See the module's docstring. Made inside the event loop; ``listener`` becomes its own."""

    def __init__(
        self, plan: Plan, node: str, listener: socket.socket, addresses: dict[str, Address],
        credentials: Credentials, owner: NetworkOwner, limits: ConnectionLimits,
    ) -> None:  # fmt: skip
        self._plan, self.node, self._listener, self._addresses = plan, node, listener, addresses
        self._credentials, self._owner, self._limits = credentials, owner, limits
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()  # connections that are being opened
        self._handshakes = 0
        self._queues: dict[str, SendQueue] = {}
        self._outgoing: dict[str, Connection] = {}  # data connections that this node opened
        self._keys: dict[str, Keys] = {}  # theirs
        self._incoming: dict[tuple[str, str], Connection] = {}
        self._beats: dict[str, Connection] = {}  # by peer, opened by either side
        late = late_comers(plan)
        self._ended = set(() if node in late else late)  # peers that said goodbye, or have yet to join
        self._refused: Counter[str] = Counter()
        self._udp: Udp | None = None
        self._departure = asyncio.Event()
        self._expendable = expendable(plan)
        self._finishing = self._closed = False

    def start(self) -> None:
        """Let others in, and begin to beat."""
        self._listener.setblocking(False)
        configure(self._listener, self._plan.transport, self._plan.timeouts)
        self._limit_buffers(self._listener)
        if self._plan.transport.best_effort_channels:
            place = self._addresses[self.node]
            self._udp = Udp(self._plan, self.node, place, self.on_datagrams, self._owner.fail)
        self._loop.add_reader(self._listener, self._on_caller)
        self._rendezvous_at_s = self._loop.time() + self._plan.timeouts.rendezvous_s
        if len(self._plan.nodes) > 1:
            self._spawn(self._beat())
            if not self._is_monitor:
                self._spawn(self._open_beat(), self._calls)

    def _limit_buffers(self, sock: socket.socket) -> None:
        if self._plan.back_end == "local":  # emulated nodes have their limits from their namespace
            limit_buffers(sock, self._plan.transport)

    @property
    def _is_monitor(self) -> bool:
        return self.node == monitor_of(self._plan)

    # ---- sending ------------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        """See ``testbed.world.World.send``."""
        assert to in self._addresses, f"{self.node} sends to {to}, which is no node of this run"
        if to in self._ended:
            return (
                None if to in self._expendable else self._owner.warn(f"{message.kind} for {to} dropped: it has ended")
            )
        queue = self._queues.get(to)
        if queue is None:
            queue = self._queues[to] = SendQueue(self._limits.queue_bytes)
            self._spawn(self._open_data(to, queue), self._calls)
        if message.channel:
            return self._send_best_effort(to, message)
        item = queue.post(encode_header(message), message.parts, message.priority)
        if to in self._outgoing:
            self._outgoing[to].wake()
        return await queue.accepted(item)

    def _send_best_effort(self, to: str, message: Message) -> None:
        assert self._udp is not None, f"channel {message.channel}: this Plan has no best-effort channels"
        self._udp.send(to, self._addresses[to], message)
        if to in self._outgoing:
            self._udp.connected(to, self._outgoing[to], self._keys[to])

    async def _open_data(self, to: str, queue: SendQueue) -> None:
        called = await self._call(to, DATA)
        if called is None:
            return
        sock, keys = called
        self._outgoing[to], self._keys[to] = self._connect(sock, to, DATA, queue, keys), keys
        if self._udp is not None:
            self._udp.connected(to, self._outgoing[to], keys)

    async def _open_beat(self) -> None:
        monitor = monitor_of(self._plan)
        called = await self._call(monitor, BEAT)
        assert called is not None, f"nobody goes on without {monitor}"
        sock, keys = called
        self._beats[monitor] = self._connect(sock, monitor, BEAT, SendQueue(1 << 16), keys)

    def _connect(self, sock: Stream, peer: str, purpose: str, queue: SendQueue, keys: Keys) -> Connection:
        connection = Connection(sock, peer, purpose, queue, self)
        if purpose == BEAT:
            queue.post(HEARTBEAT)
        connection.start(keys, self._plan.transport.mac, self._limits.max_body_bytes)
        return connection

    async def _call(self, to: str, purpose: str) -> tuple[Stream, Keys] | None:
        """Connect and introduce ourselves; try again, ever more slowly, until the rendezvous is over.

        ``None``: it is gone, and the run goes on without it.
        """
        pause_s, end_s = _FIRST_RETRY_S, self._loop.time() + self._plan.timeouts.rendezvous_s
        while True:
            try:
                return await self._call_once(to, purpose)
            except (OSError, TimeoutError) as error:
                if to in self._ended and to in self._expendable:
                    return None
                if self._loop.time() + pause_s > end_s:
                    place = address_text(self._addresses[to])
                    limit_s = self._plan.timeouts.rendezvous_s
                    raise RunFailed(f"{self.node} could not reach {to} ({place}) in {limit_s:g} s: {error}") from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def _call_once(self, to: str, purpose: str) -> tuple[Stream, Keys]:
        sock: Stream
        sock = plain = new_socket(self._addresses[self.node][0])
        try:
            configure(plain, self._plan.transport, self._plan.timeouts)
            self._limit_buffers(plain)
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                await self._loop.sock_connect(plain, self._addresses[to])
            sock = await self._covered(plain, server_side=False)
            return sock, await initiate(sock, self._credentials, self.node, to, purpose)
        except HandshakeRefused as error:
            sock.close()
            raise RunFailed(f"{self.node}: {to} ({address_text(self._addresses[to])}): {error}") from error
        except BaseException:
            sock.close()
            raise

    # ---- those who call -----------------------------------------------------------------------------------------

    def _on_caller(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:  # it went away again, or no descriptors are left
            return
        if self._handshakes >= self._limits.handshakes:
            sock.close()
            self._note_refusal("too many at a time", address)
        else:
            sock.setblocking(False)
            self._handshakes += 1
            self._spawn(self._admit(sock, address))

    async def _covered(self, sock: socket.socket, server_side: bool) -> Stream:
        """The socket, under TLS if the Plan says so."""
        tls = self._credentials.tls
        if tls is None:
            return sock
        async with asyncio.timeout(HANDSHAKE_LIMIT_S):
            return await shake_hands(sock, tls.server if server_side else tls.client, server_side)

    async def _admit(self, plain: socket.socket, address: Address) -> None:
        sock: Stream = plain
        try:
            configure(plain, self._plan.transport, self._plan.timeouts)
            sock = await self._covered(plain, server_side=True)
            hello, keys = await accept(sock, self._credentials, self._judge)
        except (HandshakeRefused, OSError, TimeoutError) as error:
            sock.close()
            self._note_refusal(str(error) or "said nothing in time", address)
            return
        finally:
            self._handshakes -= 1
        queue = SendQueue(1 << 16)
        if self._udp is not None and hello.purpose == DATA:
            self._udp.expect(hello.initiator, keys)
        connection = self._connect(sock, hello.initiator, hello.purpose, queue, keys)
        self._incoming[hello.initiator, hello.purpose] = connection
        self._ended.discard(hello.initiator)  # it may have been lost, and is back
        if hello.purpose == BEAT:
            self._beats[hello.initiator] = connection

    def _judge(self, hello: Hello) -> HandshakeResult:
        if hello.target != self.node or hello.purpose not in (DATA, BEAT) or hello.initiator not in self._addresses:
            return HandshakeResult.STRANGER
        present = self._incoming.get((hello.initiator, hello.purpose))
        if present is not None and not present.closed.done():
            return HandshakeResult.DUPLICATE
        return HandshakeResult.WELCOME

    def _note_refusal(self, reason: str, address: Address) -> None:
        self._refused[reason] += 1
        count = self._refused[reason]
        if count & (count - 1) == 0:  # the 1st, 2nd, 4th, …: a flood must not fill the log
            self._owner.warn(f"refused a connection from {address_text(address)}: {reason} (number {count})")

    # ---- what connections tell ----------------------------------------------------------------------------------

    def on_arrival(self, connection: Connection, arrival: Arrival) -> None:
        if arrival.message.sender != connection.peer:
            connection.close()
            self._lost(connection.peer, f"it sent a message in the name of {arrival.message.sender!r}")
        elif not self._finishing:
            self._owner.deliver(arrival.message, arrival.overhead_bytes)

    def on_datagrams(self, arrival: Datagrams) -> None:
        """A best-effort message is here; its sender has been verified."""
        if not self._finishing:
            self._owner.deliver(arrival.message, arrival.overhead_bytes)

    def on_end(self, connection: Connection, cause: str | None) -> None:
        if cause is None:
            self._ended.add(connection.peer)
            self._departure.set()
        elif connection.frames_received or connection not in self._incoming.values():
            self._lost(connection.peer, cause)  # else: its caller gave up waiting for our welcome, and will call again

    def _lost(self, peer: str, cause: str) -> None:
        if peer in self._expendable and not self._finishing:
            return self._do_without(peer, cause)
        error = error_of_loss(self.node, peer, cause, self._finishing)
        if error is not None:
            self._owner.fail(error)
        return None

    def _do_without(self, peer: str, cause: str) -> None:
        """It is gone; the scheduler's node tells its role so."""
        if peer in self._ended:
            return
        self._ended.add(peer)
        self._departure.set()
        for connection in [each for each in self._connections() if each.peer == peer]:
            connection.close()
        for book in (self._outgoing, self._beats, self._keys):
            book.pop(peer, None)
        queue = self._queues.pop(peer, None)
        if queue is not None:
            queue.clear()
        if self._is_monitor:
            self._owner.lost(peer, f"{peer}: {cause}")

    def pause_reading(self, pause: bool) -> None:
        """Stop taking in messages, or go on: the inbox is full, or no longer."""
        for (_, purpose), connection in self._incoming.items():
            if purpose == DATA and not connection.closed.done():
                connection.pause_reading() if pause else connection.resume_reading()
        if self._udp is not None:
            self._udp.pause_reading() if pause else self._udp.resume_reading()

    # ---- signs of life ------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        timeouts = self._plan.timeouts
        liveness = Liveness(timeouts.heartbeat_s, timeouts.dead_after_s)
        while True:
            await asyncio.sleep(timeouts.heartbeat_s)
            for connection in self._beats.values():
                if not connection.closed.done():
                    connection.queue.post(HEARTBEAT)
                    connection.wake()
            for peer in liveness.silent(self._heard(), self._loop.time()):
                self._lost(peer, f"no sign of life for {timeouts.dead_after_s:g} s")
            self._check_rendezvous()

    def _heard(self) -> dict[str, float]:
        """When each peer with a living heartbeat connection was last heard, on any of its connections."""
        heard = {peer: connection.heard_at_s for peer, connection in self._beats.items() if self._alive(peer)}
        for (peer, _), connection in self._incoming.items():
            if peer in heard:
                heard[peer] = max(heard[peer], connection.heard_at_s)
        return heard

    def _alive(self, peer: str) -> bool:
        return peer not in self._ended and not self._beats[peer].closed.done()

    def _check_rendezvous(self) -> None:
        if self._is_monitor and self._loop.time() > self._rendezvous_at_s:
            for peer in self._absent():
                self._lost(peer, f"it did not come within {self._plan.timeouts.rendezvous_s:g} s")

    def _absent(self) -> list[str]:
        here = {self.node, *self._beats, *self._ended}
        return [peer for peer in self._addresses if peer not in here and (peer, DATA) not in self._incoming]

    # ---- the end ------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Leave in good order: deliver what is queued, say goodbye. The monitor first waits for all others to leave.

        The caller bounds the time. Afterwards ``close`` is still to be called.
        """
        if self._is_monitor:
            await self._others_left()
        while self._calls:
            await asyncio.wait(self._calls)
        self._finishing = True
        for complaint in self._udp.complaints() if self._udp is not None else ():
            self._owner.warn(complaint)
        connections = self._connections()
        for connection in connections:
            connection.finish()
        while any(not connection.closed.done() for connection in connections):
            await asyncio.wait([connection.closed for connection in connections])

    async def _others_left(self) -> None:
        while not self._ended.issuperset(self._addresses.keys() - {self.node}):
            self._departure.clear()
            await self._departure.wait()

    def _connections(self) -> list[Connection]:
        return [*self._outgoing.values(), *self._incoming.values(), *self._beats.values()]

    def leave(self) -> None:
        """Go now, as this node was told to, and tell the peers that it is no crash. ``close`` is still to be called."""
        self._finishing = True
        for connection in self._connections():
            connection.leave()

    def close(self) -> None:
        """Drop everything now. Peers that were not told goodbye take it for a crash."""
        self._finishing = self._closed = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if self._udp is not None:
            self._udp.close()
        for task in self._tasks:
            task.cancel()
        for connection in self._connections():
            connection.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], *also_in: set[asyncio.Task[None]]) -> None:
        task = self._loop.create_task(coroutine)
        for tasks in (self._tasks, *also_in):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            self._owner.fail(error)
