"""A member of an overlay keeps contributions, its own and others', until it sends them on, and passes values on.

It stands between a ``KVWorker`` and the network: the worker's pushes come here instead of going to the server, and the
worker receives the values that arrive here as if the server had sent them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from testbed.codec.base import Codec
from testbed.engine.overlay.entries import Entry, packed, summed, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    OverlayNode,
)
from testbed.engine.peers import Agreed
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.base import ROOT, ScheduledOverlay
from testbed.policy.overlay.events import Chunk
from testbed.policy.overlay.parents import Parents
from testbed.state import State
from testbed.world import World


@dataclass(slots=True)
class _KeptContributions:
    """Contributions that wait to be sent on.

    since_s  by rank: when its contribution arrived here, minus the time for which members below have kept it
    """

    entries: list[Entry] = field(default_factory=list)
    since_s: dict[int, float] = field(default_factory=dict)

    def kept_s(self, now_s: float) -> list[list[float]]:
        """Return pairs of a rank and how long its contribution has waited until now, here and below, in seconds."""
        return [[rank, float(round(now_s - since_s, 6))] for rank, since_s in self.since_s.items()]


class OverlayMember(OverlayNode):
    """One member.

    The member keeps the contributions to a chunk's round until those of its whole subtree are here, or the root says
    where to send them. Then it sends all of them at once. So in a tree, a round goes up exactly once. A scheduled
    transfer carries all contributions that are here, and later ones make the member ready again. The message says how
    long each contribution has waited; the root adds this to the waiting time at the server.

    If the server applies contributions one by one, each travels to the root along the path that it names, and its reply
    travels back.

    When the membership changes, the kept contributions are dropped, and the store repeats its unanswered pushes.
    """

    def __init__(
        self, world: World, mail: OverlayMail, store: InterceptedMail, group: OverlayGroup, codec: Codec
    ) -> None:
        super().__init__(world, group)
        self._store = store
        self._codec = codec
        self._asks = isinstance(group.policy, ScheduledOverlay)
        self._rank = group.rank(world.node)
        self._measured: dict[int, list[list[float]]] = {}  # by chunk: source, target, bytes/s, measured here or below
        self._kept: dict[tuple[int, int], _KeptContributions] = {}  # by chunk and round
        self._priorities: dict[int, int] = {}
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.SPREAD, group.root, self._on_spread)
        mail.on(MessageKind.TELL, group.root, self._on_tell)

    def _on_agreed(self, agreed: Agreed) -> None:
        super()._on_agreed(agreed)
        self._kept.clear()

    def state(self) -> State:
        return super().state() | {"measured": json.dumps(self._measured)}

    def _resume(self, state: Mapping[str, Any]) -> None:
        super()._resume(state)
        self._measured = {int(chunk): measured for chunk, measured in json.loads(state["measured"]).items()}

    # ---- up -----------------------------------------------------------------------------------------------------

    async def push(self, message: Message) -> None:
        """Take this node's own contribution to one key."""
        chunk = self._chunk_of_key[message.key]
        entry = Entry((self._rank,), message.key, message.parts, message.meta)
        self._priorities[chunk.name] = max(message.priority, self._priorities.get(chunk.name, message.priority))
        kept = self._kept.setdefault((chunk.name, message.round), _KeptContributions())
        kept.entries.append(entry)
        kept.since_s[self._rank] = self._world.now()
        if self._own_is_complete(chunk, message.round):
            await self._ready(chunk, message.round)

    def _own_is_complete(self, chunk: Chunk, round_: int) -> bool:
        """Return whether all keys of this node's own contribution are here."""
        return sum(self._rank in entry.members for entry in self._entries(chunk, round_)) == len(chunk.sizes)

    def _entries(self, chunk: Chunk, round_: int) -> Sequence[Entry]:
        kept = self._kept.get((chunk.name, round_))
        return kept.entries if kept is not None else ()

    def _on_merge(self, message: Message) -> None:
        if self._passed_on(message):
            return
        chunk = self._chunks[message.key]
        bytes_per_s = self._meter.bytes_per_s(message)
        kept = self._kept.setdefault((chunk.name, message.round), _KeptContributions())
        now_s = self._world.now()
        before_s = dict(message.meta.get("kept", ()))
        entries = unpack(message.meta["entries"], message.parts)
        kept.entries += entries
        kept.since_s |= {rank: now_s - before_s.get(rank, 0.0) for entry in entries for rank in entry.members}
        self._note_throughput(message, bytes_per_s)
        self._world.spawn(self._ready(chunk, message.round, message.sender, bytes_per_s), "merge")

    async def _ready(self, chunk: Chunk, round_: int, source: str = "", bytes_per_s: float = 0.0) -> None:
        """Send contributions up if the subtree is complete, or ask the root where to send them.

        Called when this node's own contribution is complete, or when ``source`` has sent contributions.
        """
        if self._is_direct(self._rank, round_):
            await self._send_up(chunk, round_, [ROOT], {"unrelayed": True})
            return
        if self._asks:
            await self._ask(True, chunk.name, round_, source, bytes_per_s)
            return
        tree = self._tree(chunk.name, round_)
        if self._group.routes:
            await self._send_up(chunk, round_, tree.path(self._rank))
            return
        # Two MERGEs may arrive before the first one's task runs and sends both; the second task then finds nothing.
        # The values of the last round may change the tree, and a node contributes only after it has them. So until its
        # own contribution is here, this node may still have the old tree.
        here = sum(len(entry.members) for entry in self._entries(chunk, round_))
        if self._own_is_complete(chunk, round_) and here == tree.size(self._rank) * len(chunk.sizes):
            await self._send_up(chunk, round_, [tree.parents[self._rank]])

    async def _send_up(
        self, chunk: Chunk, round_: int, path: Sequence[int], more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        kept = self._kept.pop((chunk.name, round_), None)
        about = self._about | dict(more)
        if kept is None:
            return  # sent already, or dropped because the membership has changed
        entries = kept.entries
        # an own contribution alone has not waited, unless the root decides when it is sent
        kept_s = kept.kept_s(self._world.now()) if len(kept.since_s) > 1 or self._asks else []
        numbered = {"number": self._in_order.number(chunk.name, self._rank)} if self._group.routes else {}
        if self._group.sums and len(entries) > len(chunk.sizes):
            entries = await summed(self._world, entries, self._codec, chunk.sizes, round_)
        meta, parts = await packed(self._world, entries)
        about |= {"entries": meta} | numbered
        about |= {"kept": kept_s} if kept_s else {}
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
        if "unrelayed" not in message.meta:
            self._pass_down(message, bytes_per_s)
        self._take_tree(message)

    def _pass_down(self, message: Message, bytes_per_s: float) -> None:
        """Pass values on to the members below, or ask the root where to send them."""
        if self._asks:
            self._world.spawn(self._ask(False, message.key, message.round, message.sender, bytes_per_s), "ask")
            return
        self._note_throughput(message, bytes_per_s)
        tree = self._tree(message.key, message.round)
        for child in () if self._group.routes else tree.children(self._rank):
            self._world.spawn(self._send_down(message.key, self._group.members[child]), "pass on values")

    def _take_tree(self, message: Message) -> None:
        """Note the tree of the chunk's next rounds, if values bring one."""
        if "parents" in message.meta:
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
        """Send the message on if it is for another node, and return whether it was."""
        path = message.meta.get("path")
        if path:
            self._note_throughput(message, self._meter.bytes_per_s(message))
            self._world.spawn(self._send_along(path, message), "pass on")
        return bool(path)

    def _note_throughput(self, message: Message, bytes_per_s: float) -> None:
        """Note the throughput of a transfer, to be reported with the next MERGE."""
        if self._group.policy.adapts:
            measured = self._measured.setdefault(message.key, [])
            below = () if self._group.routes else message.meta.get("speeds", ())  # routed messages carry theirs on
            measured += [*below, [self._group.rank(message.sender), self._rank, bytes_per_s]]

    # ---- schedules ----------------------------------------------------------------------------------------------

    async def _ask(self, up: bool, chunk: int, round_: int, source: str, bytes_per_s: float) -> None:
        about = self._about | {"up": up} | ({"source": source, "speed": bytes_per_s} if source else {})
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
