"""A member of an overlay: keeps what it and others contribute until it is sent on; passes on the values that it gets.

Beside a ``KVStore``: its pushes come here instead of going to the server, and values that arrive here are handed to it
as if the server had sent them.
"""

from __future__ import annotations

from testbed.codec.base import Codec
from testbed.engine.overlay.entries import Entry, added_up, pack, unpack
from testbed.engine.overlay.group import CONTROL_PRIORITY, Chunks, Group, OverlayMail, Tapped, bytes_per_s
from testbed.messages import Kind, Message
from testbed.policy.overlay.events import Chunk
from testbed.policy.overlay.tree import Parents
from testbed.world import Work, World


class Member:
    """``tree``: fixed, so that nobody needs to be asked; ``None``: the root tells each transfer."""

    def __init__(
        self, world: World, mail: OverlayMail, store: Tapped, group: Group, codec: Codec, tree: Parents | None
    ) -> None:
        self._world, self._store, self._group, self._codec, self._tree = world, store, group, codec, tree
        self._rank = group.members.index(world.node)
        self._chunks = Chunks()
        self._held: dict[tuple[int, int], list[Entry]] = {}
        self._priorities: dict[int, int] = {}
        self._spreads: dict[int, Message] = {}
        mail.on(Kind.MERGE, group.root, self._on_merge)
        mail.on(Kind.SPREAD, group.root, self._on_spread)
        mail.on(Kind.TELL, group.root, self._on_tell)

    def declare(self, sizes: dict[int, int]) -> None:
        """Elements of the wire keys that live on this group's root."""
        self._chunks.declare(sizes, self._group.chunk_bytes)

    # ---- up -----------------------------------------------------------------------------------------------------

    async def push(self, message: Message) -> None:
        """This node's own contribution to one key."""
        chunk = self._chunks.of_key[message.key]
        held = self._held.setdefault((chunk.name, message.round), [])
        held.append(Entry((self._rank,), message.key, message.parts, message.meta))
        self._priorities[chunk.name] = max(message.priority, self._priorities.get(chunk.name, message.priority))
        own = sum(self._rank in entry.members for entry in held)
        if own == len(chunk.sizes):
            await self._ready(chunk, message.round)

    def _on_merge(self, message: Message) -> None:
        chunk, speed = self._chunks.by_name[message.key], bytes_per_s(message, self._world.now())
        self._held.setdefault((chunk.name, message.round), []).extend(unpack(message.meta["entries"], message.parts))
        self._world.spawn(self._ready(chunk, message.round, message.sender, speed), "merge")

    async def _ready(self, chunk: Chunk, round_: int, source: str = "", speed: float = 0.0) -> None:
        """All own keys are in, or what ``source`` sent: ask what to do, or send on when the subtree is complete."""
        if self._tree is None:
            await self._ask(True, chunk.name, round_, source, speed)
            return
        # empty: two arrived at once, and with the first of them all was sent on
        here = sum(len(entry.members) for entry in self._held.get((chunk.name, round_), ()))
        if here == self._tree.size(self._rank) * len(chunk.sizes):
            above = self._tree.parents[self._rank]
            await self._send_up(chunk, round_, self._group.root if above < 0 else self._group.members[above])

    async def _send_up(self, chunk: Chunk, round_: int, to: str) -> None:
        entries = self._held.pop((chunk.name, round_))
        if self._group.sums and len(entries) > len(chunk.sizes):
            size_bytes = sum(part.nbytes for entry in entries for part in entry.parts)
            work = Work("sum", round_, size_bytes=size_bytes)
            entries = await self._world.compute(work, lambda: added_up(entries, self._codec, chunk.sizes))
        meta, parts = pack(entries)
        about = {"root": self._group.root, "entries": meta}
        await self._world.send(to, Message(Kind.MERGE, chunk.name, round_, about, parts, self._priorities[chunk.name]))

    # ---- down ---------------------------------------------------------------------------------------------------

    def _on_spread(self, message: Message) -> None:
        self._spreads[message.key] = message
        waits = message.meta.get("waits", {})
        for entry in unpack(message.meta["entries"], message.parts):
            waited = {"waited_s": waits[self._rank]} if waits else {}
            value = Message(Kind.VALUE, entry.key, message.round, entry.notes | waited, entry.parts, message.priority)
            value.sender = self._group.root
            self._store.deliver(value)
        if self._tree is None:
            speed = bytes_per_s(message, self._world.now())
            self._world.spawn(self._ask(False, message.key, message.round, message.sender, speed), "ask")
            return
        for child in self._tree.children(self._rank):
            self._world.spawn(self._send_down(message.key, self._group.members[child]), "pass on values")

    async def _send_down(self, chunk: int, to: str) -> None:
        held = self._spreads[chunk]
        await self._world.send(to, Message(Kind.SPREAD, chunk, held.round, held.meta, held.parts, held.priority))

    # ---- words with the root --------------------------------------------------------------------------------------

    async def _ask(self, up: bool, chunk: int, round_: int, source: str, speed: float) -> None:
        about = {"root": self._group.root, "up": up} | ({"source": source, "speed": speed} if source else {})
        await self._world.send(self._group.root, Message(Kind.ASK, chunk, round_, about, priority=CONTROL_PRIORITY))

    def _on_tell(self, message: Message) -> None:
        to = message.meta["to"]
        if message.meta["up"]:
            self._world.spawn(self._send_up(self._chunks.by_name[message.key], message.round, to), "send up")
        else:
            assert self._spreads[message.key].round == message.round, "told to pass on values of another round"
            self._world.spawn(self._send_down(message.key, to), "pass on values")
