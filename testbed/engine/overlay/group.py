"""The parts that all nodes of an overlay's group share, and the mail that hands messages to the right group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.engine.inbox import Handler, Mail
from testbed.engine.keys import Declaration
from testbed.engine.peers import Agreed, Peers
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.base import ROOT, Overlay, TreeOverlay
from testbed.policy.overlay.events import Chunk, chunks_of
from testbed.policy.overlay.parents import Parents
from testbed.state import State, below, under
from testbed.world import World

CONTROL_PRIORITY = 1 << 20  # ASK and TELL overtake the transfers that they are about


@dataclass(frozen=True, slots=True)
class OverlayGroup:
    """A server, ``root``, and the children that contribute to it, in rank order, as one of these nodes sees them.

    chunk_bytes  size up to which keys travel together
    sums         whether relays add up what they pass on
    routes       whether each contribution and each reply travels by itself: they belong to no common round
    policy       this node's copy of the overlay's policy
    peers        the other nodes of the run
    first_rounds returns the first round of each present member
    """

    root: str
    members: tuple[str, ...]
    chunk_bytes: int
    sums: bool
    routes: bool
    policy: Overlay
    peers: Peers
    first_rounds: Callable[[], Mapping[str, int]]

    @property
    def continues(self) -> bool:
        """Whether members may be lost, and others join."""
        return self.peers.continues

    def rank(self, node: str) -> int:
        """Return the rank of ``node``; −1 for the root."""
        return ROOT if node == self.root else self.members.index(node)

    def node(self, rank: int) -> str:
        return self.root if rank == ROOT else self.members[rank]


class InOrder:
    """Messages that were numbered when they were sent, in that order: paths differ, and one may overtake another."""

    def __init__(self) -> None:
        self._sent: Counter[tuple[int, int]] = Counter()
        self._taken: Counter[tuple[int, int]] = Counter()
        self._early: dict[tuple[int, int, int], Message] = {}

    def number(self, chunk: int, member: int) -> int:
        """Return the number of the next message to or from a member about a chunk."""
        self._sent[chunk, member] += 1
        return self._sent[chunk, member]

    def arrived(self, message: Message, member: int) -> Iterator[Message]:
        """Take a message that has arrived, and yield all messages that are now next in the order of their numbers."""
        where = (message.key, member)
        self._early[*where, message.meta["number"]] = message
        while (following := self._early.pop((*where, self._taken[where] + 1), None)) is not None:
            self._taken[where] += 1
            yield following


class OverlayNode:
    """What the root and the members of a group have in common: chunks, once keys are declared, and values passed on."""

    def __init__(self, world: World, group: OverlayGroup) -> None:
        self._world = world
        self._group = group
        self._chunk_of_key: dict[int, Chunk] = {}
        self._chunks: dict[int, Chunk] = {}  # by name
        self._trees: dict[int, Parents] = {}  # by chunk: the present tree; empty if the root schedules each transfer
        self._spreads: dict[int, Message] = {}  # by chunk: the last values
        self._first: Mapping[str, int] = dict.fromkeys(group.members, 0)  # by present member: its first round
        self._last_star = -1  # the last round that is made as a star
        self._meter = ThroughputMeter(world)
        self._in_order = InOrder()  # used if each contribution and reply travels by itself
        self._resumed: Mapping[str, Any] = {}  # the state of a checkpoint
        group.peers.on_agreed.append(self._on_agreed)

    def _on_agreed(self, agreed: Agreed) -> None:
        """Make rounds under way as a star, and later rounds with the members that then take part."""
        self._first = self._group.first_rounds()
        self._last_star = max(self._last_star, agreed.progress)

    def _is_direct(self, rank: int, round_: int) -> bool:
        """Return whether a member exchanges with the root directly instead of by the tree or schedule.

        It does in a round that is made as a star, in its own first round if it has joined, and if it takes no part.
        """
        first = self._first.get(self._group.members[rank])
        return round_ <= self._last_star or first is None or 0 < first >= round_

    def _tree(self, chunk: int, round_: int) -> Parents:
        """Return the tree of a round; members that exchange directly are leaves right below the root."""
        tree = self._trees[chunk]
        return tree.without([rank for rank in range(len(self._group.members)) if self._is_direct(rank, round_)])

    def declare(self, declaration: Declaration) -> None:
        """Note the wire keys that live on the group's root."""
        for chunk in chunks_of(declaration.sizes, self._group.chunk_bytes):
            self._chunks[chunk.name] = chunk
            self._chunk_of_key.update(dict.fromkeys(chunk.sizes, chunk))
        self._trees = self._new_trees()
        if self._resumed:
            self._resume(self._resumed)

    def state(self) -> State:
        """Return the state for a checkpoint, which is made between two rounds, when nothing is under way."""
        return {"trees": trees_text(self._trees)} | under("policy", self._group.policy.state())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``; to be called before keys are declared."""
        self._resumed = state

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a checkpoint; keys have been declared."""
        self._trees = trees_of(state["trees"])
        self._group.policy.load_state(below("policy", state))

    def _new_trees(self) -> dict[int, Parents]:
        elements = {name: sum(chunk.sizes.values()) for name, chunk in self._chunks.items()}
        policy = self._group.policy
        return policy.trees(elements) if isinstance(policy, TreeOverlay) else {}

    async def _send_down(self, chunk: int, to: str) -> None:
        spread = self._spreads[chunk]
        message = Message(MessageKind.SPREAD, chunk, spread.round, spread.meta, spread.parts, spread.priority)
        await self._send(to, message)

    async def _send_along(self, path: Sequence[int], message: Message) -> None:
        """Send to the first rank of a path. The message names the other ranks, so trees may change on its way."""
        await self._send(self._group.node(path[0]), with_meta(message, {**message.meta, "path": list(path[1:])}))

    async def _send(self, to: str, message: Message) -> None:
        await self._world.send(to, message)

    @property
    def _about(self) -> dict[str, Any]:
        """Return the metadata of all messages of this group."""
        return {"root": self._group.root} | self._group.peers.round_stamp


def trees_text(trees: Mapping[int, Parents]) -> str:
    """Return trees by chunk as text, for a checkpoint."""
    return json.dumps({name: tree.parents for name, tree in trees.items()})


def trees_of(text: str) -> dict[int, Parents]:
    """Inverse of ``trees_text``."""
    return {int(name): Parents(tuple(parents)) for name, parents in json.loads(text).items()}


def with_meta(message: Message, meta: dict[str, Any]) -> Message:
    """Return the message with other metadata, to be sent on."""
    return Message(message.kind, message.key, message.round, meta, message.parts, message.priority)


class InterceptedMail:
    """Mail into which an overlay can insert messages (``deliver``), as if they had come from the network."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._before: dict[MessageKind, Handler] = {}
        self._handlers: dict[MessageKind, Handler] = {}

    def before(self, kind: MessageKind, handler: Handler) -> None:
        """Call ``handler`` with messages of ``kind`` before the handler that is registered with ``on`` later."""
        self._before[kind] = handler

    def on(self, kind: MessageKind, handler: Handler) -> None:
        self._handlers[kind] = handler
        before = self._before.get(kind)

        def both(message: Message) -> None:
            if before is not None:
                before(message)
            handler(message)

        self._mail.on(kind, both)

    def deliver(self, message: Message) -> None:
        self._handlers[message.kind](message)


class OverlayMail:
    """Hands each message to its group, which it names by the root: a node may belong to several groups."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._handlers: dict[tuple[MessageKind, str], Handler] = {}
        self._kinds: set[MessageKind] = set()

    def on(self, kind: MessageKind, root: str, handler: Handler) -> None:
        """Hand messages of ``kind`` in the group of ``root`` to ``handler``."""
        self._handlers[kind, root] = handler
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._mail.on(kind, self._dispatch)

    def _dispatch(self, message: Message) -> None:
        self._handlers[message.kind, message.meta["root"]](message)


class ThroughputMeter:
    """Measures the throughput of transfers that arrive at this node: payload bytes over seconds.

    A transfer begins when it was sent, as far as the receiver knows. But if an earlier transfer from the same sender
    was still arriving then, it begins at the end of that: the time in the sender's queue is no property of the link.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last_s: dict[str, float] = {}

    def bytes_per_s(self, message: Message) -> float:
        """Return the throughput of a transfer that has arrived just now. Call it once for each transfer."""
        now_s = self._world.now()
        begin_s = max(message.began_s, self._last_s.get(message.sender, 0.0))
        self._last_s[message.sender] = now_s
        return round(message.payload_bytes / max(now_s - begin_s, 1e-6), 1)
