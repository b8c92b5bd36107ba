"""A member of an overlay: keeps contributions, its own and others', until it sends them on, and passes values on.

Beside a ``KVWorker``: its pushes come here instead of going to the server, and values that arrive here are handed to it
as if the server had sent them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.codec.base import Codec
from testbed.engine.overlay.entries import Entry, packed, summed, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    OverlayNode,
    with_meta,
)
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.base import ScheduledOverlay
from testbed.policy.overlay.events import Chunk
from testbed.policy.overlay.parents import Parents
from testbed.state import State
from testbed.world import World


class OverlayMember(OverlayNode):
    """One member.

    The contributions to a chunk's round are kept until the whole subtree's are here, or the root says where to send
    them. All of them are then taken at once, so a round is sent up exactly once by a tree, and a scheduled transfer
    carries whatever is here; what arrives later makes the member ready again.

    Where contributions are applied one by one, each goes to the root along the path that it names, and its reply back.
    """

    def __init__(
        self, world: World, mail: OverlayMail, store: InterceptedMail, group: OverlayGroup, codec: Codec
    ) -> None:
        super().__init__(world, group)
        self._store, self._codec = store, codec
        self._asks = isinstance(group.policy, ScheduledOverlay)
        self._rank = group.rank(world.node)
        self._measured: dict[int, list[list[float]]] = {}  # by chunk, here or below: source, target, bytes per second
        self._kept: dict[tuple[int, int], list[Entry]] = {}
        self._priorities: dict[int, int] = {}
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.SPREAD, group.root, self._on_spread)
        mail.on(MessageKind.TELL, group.root, self._on_tell)

    def state(self) -> State:
        return super().state() | {"measured": json.dumps(self._measured)}

    def _resume(self, state: Mapping[str, Any]) -> None:
        super()._resume(state)
        self._measured = {int(chunk): measured for chunk, measured in json.loads(state["measured"]).items()}

    # ---- up -----------------------------------------------------------------------------------------------------

    async def push(self, message: Message) -> None:
        """Take this node's own contribution to one key."""
        chunk = self._chunk_of_key[message.key]
        kept = self._kept.setdefault((chunk.name, message.round), [])
        kept.append(Entry((self._rank,), message.key, message.parts, message.meta))
        self._priorities[chunk.name] = max(message.priority, self._priorities.get(chunk.name, message.priority))
        if self._own_is_complete(chunk, message.round):
            await self._ready(chunk, message.round)

    def _own_is_complete(self, chunk: Chunk, round_: int) -> bool:
        """Return whether all keys of this node's own contribution are here."""
        kept = self._kept.get((chunk.name, round_), ())
        return sum(self._rank in entry.members for entry in kept) == len(chunk.sizes)

    def _on_merge(self, message: Message) -> None:
        if self._passed_on(message):
            return
        chunk, bytes_per_s = self._chunks[message.key], self._meter.bytes_per_s(message)
        self._kept.setdefault((chunk.name, message.round), []).extend(unpack(message.meta["entries"], message.parts))
        self._note_throughput(message, bytes_per_s)
        self._world.spawn(self._ready(chunk, message.round, message.sender, bytes_per_s), "merge")

    async def _ready(self, chunk: Chunk, round_: int, source: str = "", bytes_per_s: float = 0.0) -> None:
        """Send up a complete subtree, or ask the root; the own contribution is complete, or ``source`` has sent one."""
        if self._asks:
            await self._ask(True, chunk.name, round_, source, bytes_per_s)
            return
        tree = self._trees[chunk.name]
        if self._group.routes:
            await self._send_up(chunk, round_, tree.path(self._rank))
            return
        # Two MERGEs may be handled before the task of the first runs and sends both; the second task finds nothing.
        # A node contributes only after the last round's values, which may change the tree: before its own contribution
        # is here, the tree may still be the old one.
        here = sum(len(entry.members) for entry in self._kept.get((chunk.name, round_), ()))
        if self._own_is_complete(chunk, round_) and here == tree.size(self._rank) * len(chunk.sizes):
            await self._send_up(chunk, round_, [tree.parents[self._rank]])

    async def _send_up(self, chunk: Chunk, round_: int, path: Sequence[int]) -> None:
        entries = self._kept.pop((chunk.name, round_))
        numbered = {"number": self._in_order.number(chunk.name, self._rank)} if self._group.routes else {}
        if self._group.sums and len(entries) > len(chunk.sizes):
            entries = await summed(self._world, entries, self._codec, chunk.sizes, round_)
        meta, parts = await packed(self._world, entries)
        about = {"root": self._group.root, "entries": meta} | numbered
        if self._group.policy.adapts:
            about["speeds"] = self._measured.pop(chunk.name, [])
        merge = Message(MessageKind.MERGE, chunk.name, round_, about, parts, self._priorities[chunk.name])
        await (self._send_along(path, merge) if self._group.routes else self._send(self._group.node(path[0]), merge))

    # ---- down ---------------------------------------------------------------------------------------------------

    def _on_spread(self, message: Message) -> None:
        if self._passed_on(message):
            return
        bytes_per_s = self._meter.bytes_per_s(message)
        if self._group.routes:
            for each in self._in_order.arrived(message, self._rank):
                self._take(each)
        else:
            self._spreads[message.key] = message
            self._take(message)
        if self._asks:
            self._world.spawn(self._ask(False, message.key, message.round, message.sender, bytes_per_s), "ask")
            return
        self._note_throughput(message, bytes_per_s)
        for child in () if self._group.routes else self._trees[message.key].children(self._rank):
            self._world.spawn(self._send_down(message.key, self._group.members[child]), "pass on values")
        if "parents" in message.meta:  # from the next round on
            self._trees[message.key] = Parents(tuple(message.meta["parents"]))

    def _take(self, message: Message) -> None:
        """Hand the values to the store, as if the server had sent them."""
        waits = message.meta.get("waits", {})
        for entry in unpack(message.meta["entries"], message.parts):
            waited = {"waited_s": waits[self._rank]} if waits else {}
            value = Message(
                MessageKind.VALUE, entry.key, message.round, entry.notes | waited, entry.parts, message.priority
            )
            value.sender = self._group.root
            self._store.deliver(value)

    def _passed_on(self, message: Message) -> bool:
        """Send a message on that is for another node. Return whether it was."""
        to = message.meta.get("on_to")
        if to is None or to == self._world.node:
            if path := message.meta.get("path"):
                self._note_throughput(message, self._meter.bytes_per_s(message))
                self._world.spawn(self._send_along(path, message), "pass on")
            return bool(path)
        self._world.spawn(self._world.send(to, with_meta(message, {**message.meta, "on_to": to})), "pass on")
        return True

    def _note_throughput(self, message: Message, bytes_per_s: float) -> None:
        """Note the throughput of a transfer, to be reported with the next MERGE."""
        if self._group.policy.adapts and "on_to" not in message.meta:
            measured = self._measured.setdefault(message.key, [])
            below = () if self._group.routes else message.meta.get("speeds", ())  # those travel on with the message
            measured += [*below, [self._group.rank(message.sender), self._rank, bytes_per_s]]

    # ---- schedules ----------------------------------------------------------------------------------------------

    async def _ask(self, up: bool, chunk: int, round_: int, source: str, bytes_per_s: float) -> None:
        about = {"root": self._group.root, "up": up} | ({"source": source, "speed": bytes_per_s} if source else {})
        await self._world.send(
            self._group.root, Message(MessageKind.ASK, chunk, round_, about, priority=CONTROL_PRIORITY)
        )

    def _on_tell(self, message: Message) -> None:
        to = message.meta["to"]
        if message.meta["up"]:
            path = [self._group.rank(to)]
            self._world.spawn(self._send_up(self._chunks[message.key], message.round, path), "send up")
        else:
            assert self._spreads[message.key].round == message.round, "told to pass on values of another round"
            self._world.spawn(self._send_down(message.key, to), "pass on values")
