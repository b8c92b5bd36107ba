"""The root of an overlay hands arriving contributions to its ``Server`` as pushes, and sends the replies as SPREAD.

If transfers are scheduled, the root also holds the policy: nodes ask the server to which they contribute, and every
server schedules its own keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.engine.keys import Declaration, declaration_of
from testbed.engine.overlay.entries import Entry, packed, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    OverlayNode,
    trees_of,
    trees_text,
    with_meta,
)
from testbed.engine.peers import Agreed
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
    members: set[int] = field(default_factory=set)  # ranks of the members that get a reply
    replied: set[int] = field(default_factory=set)  # keys for which the server has replied to all members


class Root(OverlayNode):
    """One group's root. Its policy plans trees, or schedules transfer by transfer.

    If members may be lost, the root repeats an answer that was lost with a relay.
    """

    def __init__(self, world: World, mail: OverlayMail, server: InterceptedMail, group: OverlayGroup) -> None:
        super().__init__(world, group)
        self._server = server
        self._policy = group.policy
        self._ranks = {member: rank for rank, member in enumerate(group.members)}
        self._planned_trees: dict[int, Parents] = {}  # by chunk: the tree from its next round on
        self._replies: dict[tuple[int, int, int], _Replies] = {}  # by chunk, round and, if routed one by one, member
        self._scheduled_round: dict[int, int] = {}  # by chunk: the last round whose members the policy knows
        self._kept_s: dict[tuple[int, int], dict[int, float]] = {}  # by chunk and round, then rank: waits at members
        self._spread_round: dict[int, int] = {}  # by chunk: the last round whose values were sent
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.ASK, group.root, self._on_ask)

    def _on_agreed(self, agreed: Agreed) -> None:
        super()._on_agreed(agreed)
        self._kept_s.clear()
        self._scheduled_round.clear()
        if isinstance(self._policy, ScheduledOverlay):
            self._policy.reset()

    def on_declare(self, message: Message) -> None:
        """Note the declared keys; all children declare the same."""
        if not self._chunks:
            self.declare(declaration_of(message))

    def declare(self, declaration: Declaration) -> None:
        super().declare(declaration)
        if self._resumed:
            return
        self._planned_trees = self._new_trees()

    def state(self) -> State:
        return super().state() | {"planned": trees_text(self._planned_trees)}

    def _resume(self, state: Mapping[str, Any]) -> None:
        super()._resume(state)
        self._planned_trees = trees_of(state["planned"])

    # ---- up -----------------------------------------------------------------------------------------------------

    def _on_merge(self, message: Message) -> None:
        if self._group.continues and message.round <= self._spread_round.get(message.key, -1):
            self._world.spawn(self._send_directly(message.sender, self._spreads[message.key]), "values once more")
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
            self._schedule(self._policy, message.key, message.round)
            self._policy.arrived(arrived, bytes_per_s)
            self._begin(self._policy.ready(True, message.key, message.round, self._group.root))

    def _learn(self, policy: TreeOverlay, message: Message, bytes_per_s: float) -> None:
        """Tell the policy the throughputs measured below; plan new trees for the next round if the policy says so."""
        own = [self._group.rank(message.sender), ROOT, bytes_per_s]
        for source, target, measured in [*message.meta["speeds"], own]:
            policy.measured(int(source), int(target), measured, message.round)
        if policy.revise(message.round):
            self._planned_trees = self._new_trees()

    def _contribute(self, entry: Entry, message: Message) -> None:
        """Deliver one push per member. A sum is the push of its first member; the pushes of the others are empty."""
        parts = entry.parts
        notes = entry.notes
        for member in entry.members:
            push = Message(MessageKind.PUSH, entry.key, message.round, notes, parts, message.priority)
            push.sender = self._group.members[member]
            self._server.deliver(push)
            parts, notes = (), {name: notes[name] for name in ("no_gradient",) if name in notes}

    # ---- down ---------------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        """Send a reply of the server: collect the replies to a round, but send first values directly."""
        if message.round == PULL_ROUND:
            await self._world.send(to, message)
            return
        chunk = self._chunk_of_key[message.key]
        rank = self._ranks[to]
        members = len(self._group.members)
        where = (chunk.name, message.round, rank if self._group.routes else ROOT)
        replies = self._replies.setdefault(where, _Replies([0.0] * members))
        replies.waits_s[rank] = max(replies.waits_s[rank], message.meta.pop("waited_s", 0.0))
        replies.values.setdefault(message.key, message)
        replies.count += 1
        replies.members.add(rank)
        if self._group.continues:
            return  # how many replies are due depends on the membership: see ``on_replied``
        if replies.count == len(chunk.sizes) * (1 if self._group.routes else members):
            await self._spread(*where, self._replies.pop(where))

    async def on_replied(self, key: int, round_: int) -> None:
        """Note that the server has replied to all present members of a key's round."""
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
        about: dict[str, Any] = self._about | {"entries": meta} | numbered
        for rank, kept_s in self._kept_s.pop((chunk, round_), {}).items():
            replies.waits_s[rank] += kept_s
        about |= {"waits": replies.waits_s} if any(replies.waits_s) else {}
        spread = Message(MessageKind.SPREAD, chunk, round_, about, parts, max(value.priority for value in values))
        if self._group.routes:
            following = self._planned_trees[chunk]
            spread.meta |= {"parents": list(following.parents)} if self._policy.adapts else {}
            await self._send_along([*reversed(following.path(member)[:-1]), member], spread)
        else:
            self._send_to(replies.members, spread)

    # ---- schedules ----------------------------------------------------------------------------------------------

    def _on_ask(self, message: Message) -> None:
        assert isinstance(self._policy, ScheduledOverlay), "members of a tree do not ask"
        self._schedule(self._policy, message.key, message.round)
        up = message.meta["up"]
        source = message.meta.get("source")
        if source:
            arrived = OverlayTransfer(up, message.key, message.round, source, message.sender)
            self._policy.arrived(arrived, message.meta["speed"])
        self._begin(self._policy.ready(up, message.key, message.round, message.sender))

    def _begin(self, transfers: Iterable[OverlayTransfer]) -> None:
        for transfer in transfers:
            if transfer.source == self._group.root:
                self._world.spawn(self._send_down(transfer.chunk, transfer.target), "send values")
            else:
                self._world.spawn(self._tell(transfer, self._about), "tell")

    async def _tell(self, transfer: OverlayTransfer, about: Mapping[str, Any]) -> None:
        about = {**about, "up": transfer.up, "to": transfer.target}
        message = Message(MessageKind.TELL, transfer.chunk, transfer.round, about, priority=CONTROL_PRIORITY)
        await self._world.send(transfer.source, message)

    def _schedule(self, policy: ScheduledOverlay, chunk: int, round_: int) -> None:
        """Tell the policy which members relay in a round, if that may change."""
        if self._group.continues and self._scheduled_round.get(chunk) != round_:
            self._scheduled_round[chunk] = round_
            policy.regroup(chunk, [self._group.members[rank] for rank in self._relaying(round_)])

    def _relaying(self, round_: int) -> list[int]:
        return [rank for rank in self._ranks.values() if not self._is_direct(rank, round_)]

    def _send_to(self, members: Collection[int], spread: Message) -> None:
        """Send the values of a round to ``members``: by tree or schedule to those that relay, directly to the others.

        Values travel down the tree of their round and carry the tree of the next round. A member contributes to the
        next round only after it has the values. So no two trees mix within a round, and no further message is needed.
        """
        chunk = spread.key
        names = self._group.members
        relaying = self._relaying(spread.round)
        present = [rank for rank in sorted(members) if self._first.get(names[rank]) is not None]
        below: Collection[int] = ()
        if chunk in self._trees:
            below = self._tree(chunk, spread.round).children(ROOT)
            following = self._planned_trees[chunk]
            if self._trees[chunk].parents != following.parents:
                spread.meta["parents"] = list(following.parents)
            self._trees[chunk] = following
        self._spreads[chunk] = spread
        self._spread_round[chunk] = spread.round
        for rank in present:
            if rank not in relaying:
                self._world.spawn(self._send_directly(names[rank], spread), "send values")
            elif rank in below:
                self._world.spawn(self._send_down(chunk, names[rank]), "send values")
        if isinstance(self._policy, ScheduledOverlay) and relaying:
            self._schedule(self._policy, chunk, spread.round)
            self._begin(self._policy.ready(False, chunk, spread.round, self._group.root))

    async def _send_directly(self, to: str, spread: Message) -> None:
        parents = {"parents": list(self._trees[spread.key].parents)} if self._policy.adapts else {}
        await self._world.send(to, with_meta(spread, {**spread.meta, **self._about, **parents, "unrelayed": True}))
