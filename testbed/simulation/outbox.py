"""The sending side of a simulated node: one ``Peer`` for each node that it sends to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from testbed.best_effort import best_effort_overhead_bytes
from testbed.messages import Message, wire_bytes
from testbed.plan.instant import ConnectionState
from testbed.simulation.best_effort import BestEffort
from testbed.simulation.clock import Clock, VirtualFuture
from testbed.simulation.envelope import Envelope
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.inbox import SimulatedInbox
from testbed.simulation.node import SimulatedNode
from testbed.simulation.predicted_transfer import GroupConnections
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.send_queue import SimulatedConnection

QUEUE_LIMIT_BYTES = 64 << 20  # as in the real world: queued for one peer before ``send`` waits


class Peer:
    """Another node, as a sender knows it.

    groups  connections of a folded sender; ``connection`` is the first of them
    """

    __slots__ = ("_most_waiting_bytes", "best_effort", "connection", "groups", "inbox", "tier", "waiting_senders")

    def __init__(
        self,
        connection: SimulatedConnection,
        inbox: SimulatedInbox,
        tier: str,
        best_effort: BestEffort | None = None,
        groups: GroupConnections | None = None,
    ) -> None:
        self.connection = connection
        self.inbox = inbox
        self.tier = tier
        self.best_effort = best_effort
        self.groups = groups
        self.waiting_senders: list[VirtualFuture[None]] = []  # senders that wait for room in the connection's queue
        self._most_waiting_bytes = 0.0  # upper bound of the queue: its size at the last look, plus all sent since then

    def has_room(self, size_bytes: float) -> bool:
        """Whether another message of ``size_bytes`` may be sent at once."""
        self._most_waiting_bytes += size_bytes
        if self._most_waiting_bytes <= QUEUE_LIMIT_BYTES:
            return True
        self._most_waiting_bytes = self.connection.waiting_bytes + size_bytes
        return self._most_waiting_bytes <= QUEUE_LIMIT_BYTES or self.connection.idle

    @property
    def connections(self) -> list[FlowConnection]:
        """The flow-level connections to this node."""
        return [each for each in self.groups or (self.connection,) if isinstance(each, FlowConnection)]


class SimulatedOutbox:
    """Sends messages of ``node``. ``connect(name)`` makes the ``Peer`` of another node at the first message to it."""

    def __init__(
        self, node: SimulatedNode, clock: Clock, recorder: VirtualRecorder, connect: Callable[[str], Peer]
    ) -> None:
        self._node = node
        self._clock = clock
        self._recorder = recorder
        self._connect = connect
        self._peers: dict[str, Peer] = {}

    async def send(self, to: str, message: Message) -> None:
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = self._connect(to)
            self._stop(peer, self._node.paused_until_s)
        node = self._node
        if message.sender:  # it was sent before, so that its first receiver has this object
            message = replace(message, meta=dict(message.meta))
        message.sender = node.name
        message.copies = node.copies
        message.sent_at_s = message.began_s = self._clock.now
        for part in message.parts:
            if not part.is_meta:  # the receiver gets tensors of its own
                message.parts = tuple(part if part.is_meta else part.detach().clone() for part in message.parts)
                break
        if message.channel:
            return self._send_best_effort(peer, message)
        payload_bytes, header_bytes = wire_bytes(message)
        payload_bytes = round(node.payloads * payload_bytes)
        size_bytes = payload_bytes + header_bytes
        copies = node.copies * peer.inbox.node.copies  # records count the messages of all folded nodes
        if peer.tier == "wan":
            self._recorder.up_bytes += payload_bytes * copies
        envelope = Envelope(message, payload_bytes * copies, header_bytes * copies, peer.inbox, peer.tier)
        if peer.groups is not None:
            envelope.parts = peer.groups.count
            envelope.folded = True
            envelope.header_bytes += peer.groups.extra_bytes
            return peer.groups.send(size_bytes, message.priority, envelope)
        if peer.has_room(size_bytes):
            peer.connection.send(size_bytes, message.priority, envelope)
            return None
        return await self._send_when_accepted(peer, size_bytes, envelope)

    async def drain(self, to: str) -> None:
        peer = self._peers.get(to)
        if peer is not None and peer.best_effort is not None:
            await peer.best_effort.drain()

    def forget(self, peer: str) -> None:
        """Drop the connection to a restarted node. Messages in flight to its old process are lost."""
        self._peers.pop(peer, None)

    def drop(self, name: str, _: Any = None) -> None:
        """Drop the messages that wait for a lost process, and those sent to it before its successor is heard."""
        peer = self._peers.get(name)
        if peer is not None and peer.inbox.node.ended:  # otherwise the node is back, over a connection of its own
            self._stop(peer, math.inf)
            peer.connection.drop_messages()  # the end of the connection also drops what the kernel has taken
            self._release(peer)

    def stop(self, until_s: float) -> None:
        """Stop sending until ``until_s`` (infinite: for ever). Only bytes that the kernel has taken still leave."""
        for peer in self._peers.values():
            self._stop(peer, until_s)

    def _stop(self, peer: Peer, until_s: float) -> None:
        if until_s > self._clock.now:
            peer.connection.stop(until_s)
            if peer.best_effort is not None:
                peer.best_effort.stop(until_s)

    def connections(self) -> dict[str, list[FlowConnection]]:
        """Return the flow-level connections to each node, in the order in which they were made."""
        return {name: peer.connections for name, peer in self._peers.items()}

    def reconnect(self, states: Mapping[str, Sequence[ConnectionState]]) -> None:
        """Make all connections anew, each from its state in ``states``. Nothing may be in flight."""
        self._peers = {name: self._connect(name) for name in states}
        for name, of_node in states.items():
            for connection, state in zip(self._peers[name].connections, of_node, strict=True):
                connection.load_state(state)
            self._stop(self._peers[name], self._node.paused_until_s)

    def _send_best_effort(self, peer: Peer, message: Message) -> None:
        assert peer.best_effort is not None, f"channel {message.channel}: this Plan has no best-effort channels"
        payload_bytes = message.payload_bytes
        if peer.tier == "wan":
            self._recorder.up_bytes += payload_bytes
        header_bytes = best_effort_overhead_bytes(message)
        peer.best_effort.send(Envelope(message, payload_bytes, header_bytes, peer.inbox, peer.tier))

    async def _send_when_accepted(self, peer: Peer, size_bytes: float, envelope: Envelope) -> None:
        """Queue the message at once. Return when the queue has room or the message has left it."""
        accepted: VirtualFuture[None] = VirtualFuture(self._clock)

        def started() -> None:
            if not accepted.done():
                accepted.set_result(None)

        peer.connection.on_room = partial(self._release, peer)
        peer.connection.send(size_bytes, envelope.message.priority, envelope, started)
        if peer.connection.waiting_bytes > QUEUE_LIMIT_BYTES and not accepted.done():
            peer.waiting_senders.append(accepted)
            await accepted

    def _release(self, peer: Peer) -> None:
        if peer.connection.waiting_bytes <= QUEUE_LIMIT_BYTES:
            peer.connection.on_room = None
            for accepted in peer.waiting_senders:
                if not accepted.done():
                    accepted.set_result(None)
            peer.waiting_senders.clear()
