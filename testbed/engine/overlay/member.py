"""A member of an overlay: keeps what it and others contribute until it is sent on; passes on the values that it gets.

Beside a ``KVStore``: its pushes come here instead of going to the server, and values that arrive here are handed to it
as if the server had sent them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.codec.base import Codec
from testbed.engine.overlay.entries import Entry, added_up, pack, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    Chunks,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    ThroughputMeter,
)
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.events import Chunk
from testbed.policy.overlay.netstorm import Detours
from testbed.policy.overlay.parents import Parents
from testbed.world import Work, World

MakeTrees = Callable[[dict[int, int]], dict[int, Parents]]  # from elements by chunk


@dataclass(frozen=True, slots=True)
class Trees:
    """``first``: by chunk, so that nobody needs to be asked; ``None``: the root tells each transfer."""

    first: MakeTrees | None = None
    detours: Detours | None = None


class Member:
    """``trees``: what this node knows before the first round."""

    def __init__(
        self, world: World, mail: OverlayMail, store: InterceptedMail, group: OverlayGroup, codec: Codec, trees: Trees
    ) -> None:
        self._world, self._store, self._group, self._codec = world, store, group, codec
        self._first_trees, self._detours = trees.first, trees.detours
        self._trees: dict[int, Parents] = {}
        self._speeds: dict[int, list[list[float]]] = {}  # seen here or below: source, target, bytes per second
        self._rank = group.members.index(world.node)
        self._chunks, self._speed = Chunks(), ThroughputMeter(world)
        self._held: dict[tuple[int, int], list[Entry]] = {}
        self._priorities: dict[int, int] = {}
        self._spreads: dict[int, Message] = {}
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.SPREAD, group.root, self._on_spread)
        mail.on(MessageKind.TELL, group.root, self._on_tell)

    def declare(self, sizes: dict[int, int]) -> None:
        """Elements of the wire keys that live on this group's root."""
        self._chunks.declare(sizes, self._group.chunk_bytes)
        if self._first_trees is not None:
            self._trees = self._first_trees(self._chunks.elements)

    # ---- up -----------------------------------------------------------------------------------------------------

    async def push(self, message: Message) -> None:
        """This node's own contribution to one key."""
        chunk = self._chunks.of_key[message.key]
        held = self._held.setdefault((chunk.name, message.round), [])
        held.append(Entry((self._rank,), message.key, message.parts, message.meta))
        self._priorities[chunk.name] = max(message.priority, self._priorities.get(chunk.name, message.priority))
        if self._own(chunk, message.round):
            await self._ready(chunk, message.round)

    def _own(self, chunk: Chunk, round_: int) -> bool:
        """Whether all that this node itself contributes is here."""
        held = self._held.get((chunk.name, round_), ())
        return sum(self._rank in entry.members for entry in held) == len(chunk.sizes)

    def _on_merge(self, message: Message) -> None:
        if self._passed_on(message):
            return
        chunk, speed = self._chunks.by_name[message.key], self._speed.bytes_per_s(message)
        self._held.setdefault((chunk.name, message.round), []).extend(unpack(message.meta["entries"], message.parts))
        self._saw(message, speed)
        self._world.spawn(self._ready(chunk, message.round, message.sender, speed), "merge")

    async def _ready(self, chunk: Chunk, round_: int, source: str = "", speed: float = 0.0) -> None:
        """All own keys are in, or what ``source`` sent: ask what to do, or send on when the subtree is complete."""
        if self._first_trees is None:
            await self._ask(True, chunk.name, round_, source, speed)
            return
        tree = self._trees[chunk.name]
        # two may arrive at once, and with the first of them all is sent on; and without the own contribution the tree
        # may not be that of this round yet
        here = sum(len(entry.members) for entry in self._held.get((chunk.name, round_), ()))
        if self._own(chunk, round_) and here == tree.size(self._rank) * len(chunk.sizes):
            above = tree.parents[self._rank]
            await self._send_up(chunk, round_, self._group.root if above < 0 else self._group.members[above])

    async def _send_up(self, chunk: Chunk, round_: int, to: str) -> None:
        entries = self._held.pop((chunk.name, round_))
        if self._group.sums and len(entries) > len(chunk.sizes):
            size_bytes = sum(part.nbytes for entry in entries for part in entry.parts)
            work = Work("sum", round_, size_bytes=size_bytes)
            entries = await self._world.compute(work, lambda: added_up(entries, self._codec, chunk.sizes))
        meta, parts = pack(entries)
        about = {"root": self._group.root, "entries": meta}
        if self._group.adapts:
            about["speeds"] = self._speeds.pop(chunk.name, [])
        await self._send(to, Message(MessageKind.MERGE, chunk.name, round_, about, parts, self._priorities[chunk.name]))

    # ---- down ---------------------------------------------------------------------------------------------------

    def _on_spread(self, message: Message) -> None:
        if self._passed_on(message):
            return
        self._spreads[message.key] = message
        waits = message.meta.get("waits", {})
        for entry in unpack(message.meta["entries"], message.parts):
            waited = {"waited_s": waits[self._rank]} if waits else {}
            value = Message(
                MessageKind.VALUE, entry.key, message.round, entry.notes | waited, entry.parts, message.priority
            )
            value.sender = self._group.root
            self._store.deliver(value)
        speed = self._speed.bytes_per_s(message)
        if self._first_trees is None:
            self._world.spawn(self._ask(False, message.key, message.round, message.sender, speed), "ask")
            return
        self._saw(message, speed)
        for child in self._trees[message.key].children(self._rank):
            self._world.spawn(self._send_down(message.key, self._group.members[child]), "pass on values")
        if "parents" in message.meta:  # from the next round on
            self._trees[message.key] = Parents(tuple(message.meta["parents"]))

    async def _send_down(self, chunk: int, to: str) -> None:
        held = self._spreads[chunk]
        await self._send(to, Message(MessageKind.SPREAD, chunk, held.round, held.meta, held.parts, held.priority))

    # ---- ways ---------------------------------------------------------------------------------------------------

    async def _send(self, to: str, message: Message) -> None:
        """To ``to``, through another node if the link there is crowded."""
        await self._world.send(*by_way(self._world, self._group, self._detours, to, message))

    def _passed_on(self, message: Message) -> bool:
        """Whether it was for somebody else, and is on its way again."""
        to = message.meta.get("on_to")
        if to is None or to == self._world.node:
            return False
        meta = {**message.meta, "on_to": to}
        passed = Message(message.kind, message.key, message.round, meta, message.parts, message.priority)
        self._world.spawn(self._world.send(to, passed), "pass on")
        return True

    def _saw(self, message: Message, speed: float) -> None:
        """Remember how fast a transfer was, to be told with the next that goes up."""
        if self._group.adapts and "on_to" not in message.meta:
            seen = self._speeds.setdefault(message.key, [])
            seen += [*message.meta.get("speeds", ()), [self._group.rank(message.sender), self._rank, speed]]

    # ---- words with the root --------------------------------------------------------------------------------------

    async def _ask(self, up: bool, chunk: int, round_: int, source: str, speed: float) -> None:
        about = {"root": self._group.root, "up": up} | ({"source": source, "speed": speed} if source else {})
        await self._world.send(
            self._group.root, Message(MessageKind.ASK, chunk, round_, about, priority=CONTROL_PRIORITY)
        )

    def _on_tell(self, message: Message) -> None:
        to = message.meta["to"]
        if message.meta["up"]:
            self._world.spawn(self._send_up(self._chunks.by_name[message.key], message.round, to), "send up")
        else:
            assert self._spreads[message.key].round == message.round, "told to pass on values of another round"
            self._world.spawn(self._send_down(message.key, to), "pass on values")


def by_way(
    world: World, group: OverlayGroup, detours: Detours | None, to: str, message: Message
) -> tuple[str, Message]:
    """Whom to send it, and as what: a message that goes through another node says who it is for."""
    meta = {name: value for name, value in message.meta.items() if name != "on_to"}
    if detours is not None:
        via = detours.way(group.rank(to), message.payload_bytes, world.now())
        if via != group.rank(to):
            to, meta["on_to"] = group.members[via], to
    return to, Message(message.kind, message.key, message.round, meta, message.parts, message.priority)
