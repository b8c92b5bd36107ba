"""The root of an overlay: hands what arrives to its ``Server`` as pushes, and collects the server's replies to SPREAD.

Where transfers are scheduled, the root also keeps the policy: nodes ask the server that they contribute to anyway, and
every server schedules its own keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.engine.overlay.entries import Entry, packed, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    OverlayNode,
    by_number,
    named,
    trees_of,
    trees_text,
    with_meta,
)
from testbed.engine.reply import PULL_ROUND
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.base import ROOT, ScheduledOverlay, TreeOverlay
from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.parents import Parents
from testbed.state import State
from testbed.world import World


@dataclass(slots=True)
class _Replies:
    """The server's replies to one chunk's round: a value per key, and how long each member's contribution waited."""

    waits_s: list[float]
    values: dict[int, Message] = field(default_factory=dict)
    count: int = 0
    members: set[int] = field(default_factory=set)  # who are answered
    replied: set[int] = field(default_factory=set)  # keys of which all are answered


class Root(OverlayNode):
    """One group's root. Its policy decides by trees, or transfer by transfer.

    Where members may be lost, the root also says who takes part in a chunk's next round: all that it sends values to.
    When one of them is lost, the others send to the root directly what is not answered, and are answered directly.
    """

    def __init__(self, world: World, mail: OverlayMail, server: InterceptedMail, group: OverlayGroup) -> None:
        super().__init__(world, group)
        self._server, self._policy = server, group.policy
        self._ranks = {member: rank for rank, member in enumerate(group.members)}
        self._planned_trees: dict[int, Parents] = {}  # from the chunk's next round on
        self._replies: dict[tuple[int, int, int], _Replies] = {}  # by chunk, round and, of one by itself, member
        self._absent: set[int] = set(group.late)
        self._joined: dict[int, int] = {}  # by rank: membership epochs of those that have joined
        self._together: dict[int, tuple[int, ...]] = {}  # by chunk: ranks among which its present round travels
        self._delivered: dict[tuple[int, int], set[int]] = {}  # by key and round: ranks
        self._kept_s: dict[tuple[int, int], dict[int, float]] = {}  # by chunk and round: at members, by rank
        self._spread_round: dict[int, int] = {}  # by chunk: the last one whose values were sent
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.ASK, group.root, self._on_ask)

    def on_declare(self, message: Message) -> None:
        """Note the keys, which all children declare alike."""
        if not self._chunks:
            keys, counts = message.parts
            self.declare(dict(zip(keys.tolist(), counts.tolist(), strict=True)))

    def declare(self, sizes: Mapping[int, int]) -> None:
        super().declare(sizes)
        if self._resumed:
            return
        self._planned_trees = self._new_trees()
        starting = tuple(rank for rank in self._ranks.values() if rank not in self._group.late)
        self._together = dict.fromkeys(self._chunks, () if self._generation else starting)
        if self._group.late and isinstance(self._policy, ScheduledOverlay):
            for chunk in self._chunks:
                self._policy.regroup(chunk, [self._group.members[rank] for rank in starting])
        if self._generation:
            self._trees = dict.fromkeys(self._trees, self._group.star)

    def state(self) -> State:
        return super().state() | {"planned": trees_text(self._planned_trees)}

    def _regrouped(self) -> dict[str, Any]:
        return {
            "generation": self._generation, "absent": sorted(self._absent), "joined": self._joined,
            "together": self._together, "spread": self._spread_round,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if "regrouped" in state:  # before the server is told who is absent
            self._absent = set(json.loads(state["regrouped"])["absent"])

    def _resume(self, state: Mapping[str, Any]) -> None:
        super()._resume(state)
        self._planned_trees = trees_of(state["planned"])
        self._together = dict.fromkeys(self._chunks, tuple(self._ranks.values()))
        if "regrouped" not in state:
            return
        known = json.loads(state["regrouped"])
        self._generation, self._joined = known["generation"], by_number(known["joined"])
        self._spread_round = by_number(known["spread"])
        self._together = {chunk: tuple(ranks) for chunk, ranks in by_number(known["together"]).items()}
        if isinstance(self._policy, ScheduledOverlay):
            for chunk, ranks in self._together.items():
                self._policy.regroup(chunk, [self._group.members[rank] for rank in ranks])

    # ---- up -----------------------------------------------------------------------------------------------------

    def _on_merge(self, message: Message) -> None:
        if self._group.continues and not self._is_current(message):
            return
        sender = int(message.meta["entries"][0][0][0])
        for each in self._in_order.arrived(message, sender) if self._group.routes else (message,):
            if "kept" in each.meta:
                self._kept_s.setdefault((each.key, each.round), {}).update(each.meta["kept"])
            for entry in unpack(each.meta["entries"], each.parts):
                self._contribute(entry, each)
        if "unrelayed" in message.meta:
            return
        bytes_per_s = self._meter.bytes_per_s(message)
        if isinstance(self._policy, TreeOverlay) and self._policy.adapts:
            self._learn(self._policy, message, bytes_per_s)
        if isinstance(self._policy, ScheduledOverlay):
            arrived = OverlayTransfer(True, message.key, message.round, message.sender, self._group.root)
            self._policy.arrived(arrived, bytes_per_s)
            self._begin(self._policy.ready(True, message.key, message.round, self._group.root))

    def _learn(self, policy: TreeOverlay, message: Message, bytes_per_s: float) -> None:
        """Tell the policy what was measured below; plan other trees for the next round if it asks for that."""
        own = [self._group.rank(message.sender), ROOT, bytes_per_s]
        for source, target, measured in [*message.meta["speeds"], own]:
            policy.measured(int(source), int(target), measured, message.round)
        if policy.revise(message.round):
            self._planned_trees = self._new_trees()

    def _contribute(self, entry: Entry, message: Message) -> None:
        """Deliver one push per member. A sum is the push of its first member; the pushes of the others are empty."""
        parts, notes = entry.parts, entry.notes
        if self._group.continues:
            delivered = self._delivered.setdefault((entry.key, message.round), set())
            if not delivered.isdisjoint(entry.members) or not self._absent.isdisjoint(entry.members):
                return
            delivered.update(entry.members)
        for member in entry.members:
            push = Message(MessageKind.PUSH, entry.key, message.round, notes, parts, message.priority)
            push.sender = self._group.members[member]
            self._server.deliver(push)
            parts, notes = (), {name: notes[name] for name in ("no_gradient",) if name in notes}

    # ---- down ---------------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        """Send for the server: collect its replies to a round, send first values directly."""
        if message.round == PULL_ROUND:
            await self._world.send(to, message)
            return
        chunk = self._chunk_of_key[message.key]
        rank, members = self._ranks[to], len(self._group.members)
        where = (chunk.name, message.round, rank if self._group.routes else ROOT)
        replies = self._replies.setdefault(where, _Replies([0.0] * members))
        replies.waits_s[rank] = max(replies.waits_s[rank], message.meta.pop("waited_s", 0.0))
        replies.values.setdefault(message.key, message)
        replies.count += 1
        replies.members.add(rank)
        if self._group.continues:
            return  # who is answered depends on who is there: see ``on_replied``
        if replies.count == len(chunk.sizes) * (1 if self._group.routes else members):
            await self._spread(*where, self._replies.pop(where))

    async def on_replied(self, key: int, round_: int) -> None:
        """Note that the server has replied to all members of a key's round that are there."""
        chunk = self._chunk_of_key[key]
        where = (chunk.name, round_, ROOT)
        replies = self._replies.get(where)
        if replies is None:
            return
        replies.replied.add(key)
        if len(replies.replied) == len(chunk.sizes):
            await self._spread(*where, self._replies.pop(where))

    async def _spread(self, chunk: int, round_: int, member: int, replies: _Replies) -> None:
        """Send the values of a round to all members, or to one (``member``)."""
        values = [replies.values[key] for key in sorted(replies.values)]
        numbered = {"number": self._in_order.number(chunk, member)} if self._group.routes else {}
        meta, parts = await packed(self._world, [Entry((), value.key, value.parts, value.meta) for value in values])
        about: dict[str, Any] = {"root": self._group.root, "entries": meta} | numbered
        for rank, kept_s in self._kept_s.pop((chunk, round_), {}).items():
            replies.waits_s[rank] += kept_s
        about |= {"waits": replies.waits_s} if any(replies.waits_s) else {}
        spread = Message(MessageKind.SPREAD, chunk, round_, about, parts, max(value.priority for value in values))
        if self._group.routes:
            following = self._planned_trees[chunk]
            spread.meta |= {"parents": list(following.parents)} if self._policy.adapts else {}
            await self._send_along([*reversed(following.path(member)[:-1]), member], spread)
        else:
            self._send_to(sorted(replies.members - self._absent), spread)

    # ---- schedules ----------------------------------------------------------------------------------------------

    def _on_ask(self, message: Message) -> None:
        assert isinstance(self._policy, ScheduledOverlay), "members of a tree do not ask"
        if message.meta.get("generation", 0) < self._generation:
            return  # a member is lost since
        up, source = message.meta["up"], message.meta.get("source")
        if source:
            arrived = OverlayTransfer(up, message.key, message.round, source, message.sender)
            self._policy.arrived(arrived, message.meta["speed"])
        self._begin(self._policy.ready(up, message.key, message.round, message.sender))

    def _begin(self, transfers: Iterable[OverlayTransfer]) -> None:
        for transfer in transfers:
            if transfer.source == self._group.root:
                self._world.spawn(self._send_down(transfer.chunk, transfer.target), "send values")
            else:
                self._world.spawn(self._tell(transfer, self._generation), "tell")

    async def _tell(self, transfer: OverlayTransfer, generation: int) -> None:
        about = {"root": self._group.root, "up": transfer.up, "to": transfer.target} | named(generation)
        message = Message(MessageKind.TELL, transfer.chunk, transfer.round, about, priority=CONTROL_PRIORITY)
        await self._world.send(transfer.source, message)

    # ---- members that are lost, and others that join ------------------------------------------------------------

    def on_member_declared(self, member: str, epoch: int) -> None:
        """Note that ``member`` takes part, since membership epoch ``epoch``: 0, from the start."""
        rank = self._ranks.get(member)
        if rank is None:
            return  # it has no training worker
        self._absent.discard(rank)
        if epoch:
            self._joined[rank] = epoch

    def on_member_lost(self, member: str) -> None:
        """End all rounds that are under way without relays, if ``member`` was to pass something on."""
        rank = self._ranks[member]
        if rank in self._absent:
            return
        self._absent.add(rank)
        self._joined.pop(rank, None)
        if self._chunks and all(rank not in each for each in self._together.values()):
            return
        self._generation += 1
        self._together = dict.fromkeys(self._chunks, ())
        self._trees = dict.fromkeys(self._trees, self._group.star)
        if isinstance(self._policy, ScheduledOverlay):
            self._policy.reset()
        about = {
            "root": self._group.root, "generation": self._generation,
            "joined": [list(each) for each in self._joined.items()],
        }  # fmt: skip
        for other, name in enumerate(self._group.members):
            if other not in self._absent:
                resend = Message(MessageKind.RESEND, meta=dict(about), priority=CONTROL_PRIORITY)
                self._world.spawn(self._world.send(name, resend), "send once more")

    def _is_current(self, message: Message) -> bool:
        """Return whether a MERGE may hold something new. Answer one whose answer was lost on its way."""
        direct = "unrelayed" in message.meta
        if message.round <= self._spread_round.get(message.key, -1):
            spread = self._spreads[message.key]
            if direct and spread.round == message.round:
                self._world.spawn(self._send_directly(message.sender, spread), "send values once more")
            return False
        return direct or message.meta.get("generation", 0) == self._generation

    def _send_to(self, members: Sequence[int], spread: Message) -> None:
        """Send the values of a round to these members, who travel together from the next round on.

        Values travel down the tree of their round and carry that of the next one. A member contributes to the next
        round only after it has them, so no two trees mix within a round, and no message is needed to agree on one.
        """
        chunk, names = spread.key, self._group.members
        tree, together = self._trees.get(chunk), set(self._together[chunk])
        changed, self._together[chunk] = set(members) != together, tuple(members)
        spread.meta |= named(self._generation)
        if changed:
            spread.meta["joined"] = [[rank, epoch] for rank, epoch in self._joined.items() if rank in members]
        if tree is not None:
            others = set(range(len(names))).difference(members)
            following = self._trees[chunk] = self._planned_trees[chunk].without(others)
            if changed or tree.parents != following.parents:
                spread.meta["parents"] = list(following.parents)
        self._spreads[chunk], self._spread_round[chunk] = spread, spread.round
        for place in [place for place in self._delivered if self._chunk_of_key[place[0]].name == chunk]:
            if place[1] <= spread.round:
                del self._delivered[place]
        for rank in members:
            if rank not in together:
                self._world.spawn(self._send_directly(names[rank], spread), "send values")
            elif tree is not None and tree.parents[rank] == ROOT:
                self._world.spawn(self._send_down(chunk, names[rank]), "send values")
        if isinstance(self._policy, ScheduledOverlay):
            if together:
                self._begin(self._policy.ready(False, chunk, spread.round, self._group.root))
            if changed:
                self._policy.regroup(chunk, [names[rank] for rank in members])

    async def _send_directly(self, to: str, spread: Message) -> None:
        await self._world.send(to, with_meta(spread, {**spread.meta, "unrelayed": True}))
