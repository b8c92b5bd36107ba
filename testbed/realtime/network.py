"""The connections of one node: whom it sends to and receives from, which peers have left, and when it may itself leave.

Each ordered pair of nodes has one data connection. The sender opens it when it first has a message to send, so the
order in which nodes start does not matter. If both nodes share memory, the pair likewise has a second connection for
messages that are sent aside (``World.send_aside``). Each node has one heartbeat connection to the monitor
(``testbed.realtime.heartbeat``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from testbed.ids import data_center_of, link_name
from testbed.messages import Message, encode_header
from testbed.plan.fault_clock import expendable
from testbed.plan.model import monitor_of
from testbed.realtime.auth import ASIDE, BEAT, DATA, HandshakeResult, Hello, Keys
from testbed.realtime.connecting import Acceptor, Connector
from testbed.realtime.connection import Connection
from testbed.realtime.frames import HEARTBEAT, Arrival
from testbed.realtime.heartbeat import Heartbeats, PeerLost
from testbed.realtime.overload import overload
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.setup import NodeSetup
from testbed.realtime.stream import ByteStream
from testbed.realtime.udp import Udp

_CONTROL_QUEUE_BYTES = 1 << 16  # limit of the send queue of a connection on which this node sends control frames only


class NetworkOwner(Protocol):
    """The world that a network belongs to. It receives the network's messages, losses of peers, warnings and errors."""

    def deliver(self, arrival: Arrival, began_s: float, aside: bool = False) -> None: ...
    def on_peer_lost(self, peer: str, why: str) -> None: ...
    def warn(self, message: str) -> None: ...
    def record(self, kind: str, **fields: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def run_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]: ...


class Network:
    """See the module's docstring. Made inside the event loop; takes ownership of the listener."""

    def __init__(self, setup: NodeSetup, owner: NetworkOwner) -> None:
        plan = setup.plan
        node = setup.name
        self._plan = plan
        self.node = node
        self._addresses = setup.addresses
        self._limits = setup.limits
        self._bound = setup.bound
        self._beside = setup.beside
        self._owner = owner
        self._shares_memory = setup.shares_memory
        self._loop = asyncio.get_running_loop()
        self._connector = Connector(setup)
        self._acceptor = Acceptor(setup, self, owner.run_task)
        self._opening: set[asyncio.Task[None]] = set()
        self._dialling: set[tuple[str, str]] = set()  # peer and purpose of connections that are being opened
        self._queues: dict[tuple[str, str], SendQueue] = {}  # by peer and purpose
        self._outgoing: dict[tuple[str, str], Connection] = {}  # opened by this node, by peer and purpose
        self._outgoing_keys: dict[str, Keys] = {}
        self._incoming: dict[tuple[str, str], Connection] = {}  # by peer and purpose
        self._processes: dict[str, bytes] = {}  # by peer: the process of it that connected last
        self._heartbeats = Heartbeats(plan.timeouts)
        # Peers that have left, or have not joined yet. A node that joins a run in progress starts with none: the
        # scheduler tells it which have not joined.
        self._left = set(() if node in setup.absent or setup.since_s is not None else setup.absent)
        self._peer_left = asyncio.Event()
        self._expendable = expendable(plan)
        self._udp: Udp | None = None
        self._role_has_ended = self._finishing = self._paused = False
        self._reported_silent: set[str] = set()

    def start(self) -> None:
        """Accept connections, and begin to send heartbeats."""
        self._acceptor.start()
        if self._plan.transport.best_effort_channels:
            self._udp = Udp(self._plan, self.node, self._bound, self.on_datagrams, self._owner.fail)
        self._rendezvous_at_s = self._loop.time() + self._plan.timeouts.rendezvous_s
        if len(self._plan.nodes) > 1:
            self._heartbeats.start()
            self._owner.run_task(self._watch_peers(), "watch peers")
            if not self._is_monitor:
                self._opening.add(self._owner.run_task(self._open_heartbeat(), "connect for heartbeats"))

    @property
    def _is_monitor(self) -> bool:
        return self.node == monitor_of(self._plan)

    def host_of(self, node: str) -> str:
        """Return the IP address of a node, which may be this one, for the connections of a library."""
        return self._addresses[node][0]

    def is_beside(self, node: str) -> bool:
        return self._beside is None or node in self._beside

    # ---- sending ------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message, aside: bool = False) -> asyncio.Future[None] | None:
        """See ``World.send`` and ``send_aside``. Return a future that the sender has to await if the queue is full."""
        assert to in self._addresses, f"{self.node} sends to {to}, which is not a node of this run"
        if to in self._left:
            if to not in self._expendable:
                self._owner.warn(f"{message.kind} for {to} dropped: it has ended")
            return None
        where = (to, ASIDE if aside and self._shares_memory(to, ASIDE) else DATA)
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = SendQueue(self._limits.queue_bytes)
            if where not in self._dialling:  # else the peer was lost and is back; it would refuse a second connection
                self._dialling.add(where)
                self._opening.add(self._owner.run_task(self._open(*where), f"connect to {to}"))
        if message.channel:
            assert self._udp is not None, f"channel {message.channel}: this plan has no best-effort channels"
            self._udp.send(to, self._addresses[to], message)
            if where in self._outgoing:
                self._udp.connected(to, self._outgoing[where], self._outgoing_keys[to])
            return None
        item = queue.post(encode_header(message), message.parts, message.priority)
        if where in self._outgoing:
            self._outgoing[where].wake()
        return queue.accepted(item)

    async def drain(self, to: str) -> None:
        if self._udp is not None:
            await self._udp.drain(to)

    async def _open(self, to: str, purpose: str) -> None:
        where = (to, purpose)
        try:
            opened = await self._connector.connect(to, purpose, lambda: to in self._left and to in self._expendable)
        finally:
            self._dialling.discard(where)
        if opened is None:
            return
        stream, keys = opened
        queue = self._queues.get(where)
        if queue is None:  # the peer was lost meanwhile
            stream.close()
            return
        self._outgoing[where] = self._begin(stream, to, purpose, queue, keys)
        if purpose == DATA:
            self._outgoing_keys[to] = keys
            if self._udp is not None:
                self._udp.connected(to, self._outgoing[where], keys)

    async def _open_heartbeat(self) -> None:
        monitor = monitor_of(self._plan)
        opened = await self._connector.connect(monitor, BEAT)
        assert opened is not None, f"no run continues without {monitor}"
        stream, keys = opened
        self._heartbeats.connections[monitor] = self._begin(
            stream, monitor, BEAT, SendQueue(_CONTROL_QUEUE_BYTES), keys
        )

    def _begin(self, stream: ByteStream, peer: str, purpose: str, queue: SendQueue, keys: Keys) -> Connection:
        connection = Connection(stream, peer, purpose, queue, self)
        if purpose == BEAT:
            queue.post(HEARTBEAT)
        connection.start(keys, self._plan.transport, self._limits.max_body_bytes)
        return connection

    # ---- accepted connections -----------------------------------------------------------------------------------

    def authorize(self, hello: Hello) -> HandshakeResult:
        """Decide whether a node that knows the secret may connect."""
        peer = hello.initiator
        if hello.target != self.node or hello.purpose not in (DATA, ASIDE, BEAT) or peer not in self._addresses:
            return HandshakeResult.UNKNOWN_NODE
        if self._processes.get(peer, hello.process) != hello.process and peer in self._expendable:
            self._lose(peer, "has started again")  # this node may not have noticed the end of its old connections
        if self._is_monitor and self._role_has_ended and peer in self._left:
            return HandshakeResult.TOO_LATE  # the scheduler's role, which would let it in, has ended
        present = self._incoming.get((peer, hello.purpose))
        if present is not None and not present.closed.done():
            return HandshakeResult.DUPLICATE
        self._processes[peer] = hello.process
        return HandshakeResult.ACCEPTED

    def on_accepted(self, stream: ByteStream, hello: Hello, keys: Keys) -> None:
        if self._udp is not None and hello.purpose == DATA:
            self._udp.expect(hello.initiator, keys)
        connection = self._begin(stream, hello.initiator, hello.purpose, SendQueue(_CONTROL_QUEUE_BYTES), keys)
        self._incoming[hello.initiator, hello.purpose] = connection
        if self._paused and hello.purpose == DATA:
            connection.pause_reading()
        self._left.discard(hello.initiator)  # a lost peer may have come back
        if hello.purpose == BEAT:
            self._heartbeats.connections[hello.initiator] = connection

    def warn(self, message: str) -> None:
        self._owner.warn(message)

    # ---- events of connections ----------------------------------------------------------------------------------

    def on_arrival(self, connection: Connection, arrival: Arrival) -> None:
        if arrival.message.sender != connection.peer:
            connection.close()
            self._lose(connection.peer, f"sent a message in the name of {arrival.message.sender!r}")
        elif not self._finishing:
            began_s = arrival.began_s - connection.least_delay_s()
            self._owner.deliver(arrival, began_s, aside=connection.purpose == ASIDE)

    def on_datagrams(self, arrival: Arrival) -> None:
        """Take a complete best-effort message whose sender has been verified."""
        if not self._finishing:
            self._owner.deliver(arrival, self._loop.time())

    def on_end(self, connection: Connection, cause: str | None) -> None:
        """Note that a connection is closed; ``cause`` is None after an orderly end."""
        if cause is None:
            self._left.add(connection.peer)
            self._peer_left.set()
        elif connection.frames_received or connection not in self._incoming.values():
            self._lose(connection.peer, cause)
        # Else the initiator's handshake timed out while this end accepted it. The initiator will connect again.

    def _lose(self, peer: str, cause: str) -> None:
        """Handle the loss of ``peer``: fail, continue without it, or only warn if this node's own role has ended."""
        if self._finishing:
            return
        if self._role_has_ended:
            self._owner.warn(f"{peer}: {cause}, after the end of this node's part")
            self._forget(peer)
        elif peer in self._expendable:
            self._continue_without(peer, cause)
        else:
            self._owner.fail(PeerLost(self.node, peer, cause))

    def _continue_without(self, peer: str, cause: str) -> None:
        """Forget the peer. If this node is the monitor, notify its role, the scheduler."""
        if peer not in self._left:
            self._forget(peer)
            if self._is_monitor:
                self._owner.on_peer_lost(peer, f"{peer}: {cause}")

    def _forget(self, peer: str) -> None:
        self._left.add(peer)
        self._peer_left.set()
        for connection in self._connections():
            if connection.peer == peer:
                connection.close()
        for by_peer in (self._heartbeats.connections, self._outgoing_keys):
            by_peer.pop(peer, None)
        for purpose in (DATA, ASIDE):
            self._outgoing.pop((peer, purpose), None)
            queue = self._queues.pop((peer, purpose), None)
            if queue is not None:
                queue.clear()
        if self._udp is not None:
            self._udp.lost(peer)

    def forget(self, peer: str, before_s: float) -> None:
        """See ``testbed.world.World.forget``; ``before_s`` is on the loop's clock."""
        connections = [each for each in self._connections() if each.peer == peer and not each.closed.done()]
        if all(each.began_at_s < before_s for each in connections):  # else the peer is back
            self._continue_without(peer, "is lost")

    def turn_away(self, peer: str) -> None:
        """After the end of this node's part, end the connections of a node that wants to join."""
        self._lose(peer, "has started again")

    def pause_reading(self, pause: bool) -> None:
        """Stop reading messages while the inbox is full, or read again. This also holds for later connections."""
        self._paused = pause
        readers: list[Connection | Udp] = [
            connection
            for (_, purpose), connection in self._incoming.items()
            if purpose == DATA and not connection.closed.done()
        ]
        if self._udp is not None:
            readers.append(self._udp)
        for reader in readers:
            if pause:
                reader.pause_reading()
            else:
                reader.resume_reading()

    # ---- failure detection --------------------------------------------------------------------------------------

    async def _watch_peers(self) -> None:
        timeouts = self._plan.timeouts
        while True:
            await asyncio.sleep(timeouts.heartbeat_s)
            for peer in self._heartbeats.silent(self._incoming.values(), self._loop.time()):
                if peer not in self._left:
                    self._on_silent(peer, f"no sign of life for {timeouts.dead_after_s:g} s{overload()}")
            if self._is_monitor and self._loop.time() > self._rendezvous_at_s:
                present = {self.node, *self._heartbeats.connections, *self._left}
                present |= {peer for peer, purpose in self._incoming if purpose == DATA}
                for peer in [peer for peer in self._addresses if peer not in present]:
                    self._lose(peer, f"did not connect within {timeouts.rendezvous_s:g} s")

    def _on_silent(self, peer: str, cause: str) -> None:
        """Lose a silent peer; but after the end of this node's role, only warn.

        The peer may be busy then, and the kernel closes its connections if the path is dead.
        """
        if not self._role_has_ended:
            self._lose(peer, cause)
        elif peer not in self._reported_silent:
            self._reported_silent.add(peer)
            self._owner.warn(f"{peer}: {cause}; its end is waited for")

    # ---- the end ------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Leave in good order: deliver queued messages and exchange CLOSE frames. The monitor leaves after all others.

        The caller limits the time, and must call ``close`` afterwards.
        """
        self._role_has_ended = True
        if self._is_monitor:
            while not self._left.issuperset(self._addresses.keys() - {self.node}):
                self._peer_left.clear()
                await self._peer_left.wait()
        while opening := [task for task in self._opening if not task.done()]:
            await asyncio.wait(opening)
        self._finishing = True
        self._record_paths()
        for problem in self._udp.problems() if self._udp is not None else ():
            self._owner.warn(problem)
        connections = self._connections()
        for connection in connections:
            connection.finish()
        if connections:
            await asyncio.wait([connection.closed for connection in connections])

    def _record_paths(self) -> None:
        """Record round-trip times and losses of connections to other data centres, if the network is not shaped."""
        if not self._plan.facilities.is_unshaped or not self._plan.has_wan:
            return
        here = data_center_of(self.node)
        for (peer, _), connection in self._outgoing.items():
            there = data_center_of(peer)
            info = connection.tcp_info()
            if there != here and info is not None:
                self._owner.record(
                    "path",
                    path=link_name(here, there),
                    when="during",
                    rtt_s=info.rtt_s,
                    min_rtt_s=info.min_rtt_s,
                    loss=info.loss,
                    packets=info.packets,
                )

    def _connections(self) -> list[Connection]:
        return [*self._outgoing.values(), *self._incoming.values(), *self._heartbeats.connections.values()]

    def leave(self) -> None:
        """End now, with CLOSE frames where possible, because this node was told to end. Call ``close`` afterwards."""
        self._finishing = True
        for connection in self._connections():
            connection.leave()

    def close(self) -> None:
        """Drop everything now; the owner ends the tasks. Peers without a CLOSE frame from this node see a crash."""
        self._finishing = True
        self._heartbeats.stop()
        self._acceptor.close()
        if self._udp is not None:
            self._udp.close()
        for connection in self._connections():
            connection.close()
