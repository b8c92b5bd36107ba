"""The root of an overlay: hands what arrives to its ``Server`` as pushes, and sends the server's answers as one.

It also keeps the policy, where transfers are told one by one: words go to and fro between each node and the server
that it would talk to anyway, and every server looks after its own keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.engine.kvworker import PULL_ROUND
from testbed.engine.overlay.entries import Entry, pack, unpack
from testbed.engine.overlay.group import (
    CONTROL_PRIORITY,
    Chunks,
    InterceptedMail,
    OverlayGroup,
    OverlayMail,
    ThroughputMeter,
)
from testbed.engine.overlay.member import by_way
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.base import ROOT, Overlay, ScheduledOverlay, TreeOverlay
from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.netstorm import Detours
from testbed.policy.overlay.parents import Parents
from testbed.world import World


@dataclass(slots=True)
class _Answers:
    """The server's answers to one chunk's round: a value per key, and how long each member's contribution lay."""

    waits_s: list[float]
    values: dict[int, Message] = field(default_factory=dict)
    count: int = 0


class Root:
    """``policy`` decides by trees, or transfer by transfer."""

    def __init__(
        self,
        world: World,
        mail: OverlayMail,
        server: InterceptedMail,
        group: OverlayGroup,
        policy: Overlay,
        detours: Detours | None = None,
    ) -> None:
        self._detours = detours
        self._world, self._server, self._group, self._policy = world, server, group, policy
        self._ranks = {member: rank for rank, member in enumerate(group.members)}
        self._chunks, self._speed = Chunks(), ThroughputMeter(world)
        self._trees: dict[int, Parents] = {}  # in use now, and from their next round on
        self._planned: dict[int, Parents] = {}
        self._answers: dict[tuple[int, int], _Answers] = {}
        self._spreads: dict[int, Message] = {}
        mail.on(MessageKind.MERGE, group.root, self._on_merge)
        mail.on(MessageKind.ASK, group.root, self._on_ask)

    def on_declare(self, message: Message) -> None:
        """A child has declared its keys; all declare the same."""
        if not self._chunks.by_name:
            keys, counts = message.parts
            self._chunks.declare(dict(zip(keys.tolist(), counts.tolist(), strict=True)), self._group.chunk_bytes)
            if isinstance(self._policy, TreeOverlay):
                self._trees = self._policy.trees(self._chunks.elements)
                self._planned = dict(self._trees)

    # ---- up -----------------------------------------------------------------------------------------------------

    def _on_merge(self, message: Message) -> None:
        for entry in unpack(message.meta["entries"], message.parts):
            self._contribute(entry, message)
        speed = self._speed.bytes_per_s(message)
        if isinstance(self._policy, TreeOverlay) and self._policy.adapts:
            self._learn(self._policy, message, speed)
        if isinstance(self._policy, ScheduledOverlay):
            arrived = OverlayTransfer(True, message.key, message.round, message.sender, self._group.root)
            self._policy.arrived(arrived, speed)
            self._begin(self._policy.ready(True, message.key, message.round, self._group.root))

    def _learn(self, policy: TreeOverlay, message: Message, speed: float) -> None:
        own = [[self._group.rank(message.sender), ROOT, speed]] if "on_to" not in message.meta else []
        for source, target, seen in [*message.meta["speeds"], *own]:
            policy.measured(int(source), int(target), seen, message.round)
        if policy.revise(message.round):
            self._planned = policy.trees(self._chunks.elements)

    def _contribute(self, entry: Entry, message: Message) -> None:
        """One push per member; of a sum the first member's carries it, and those of the others are empty."""
        parts, notes = entry.parts, entry.notes
        for member in entry.members:
            push = Message(MessageKind.PUSH, entry.key, message.round, notes, parts, message.priority)
            push.sender = self._group.members[member]
            self._server.deliver(push)
            parts, notes = (), {}

    # ---- down ---------------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        """What the server sends: answers to a round are gathered, first values go their own way."""
        if message.round == PULL_ROUND:
            await self._world.send(to, message)
            return
        chunk = self._chunks.of_key[message.key]
        where = (chunk.name, message.round)
        answers = self._answers.setdefault(where, _Answers([0.0] * len(self._group.members)))
        rank = self._ranks[to]
        answers.waits_s[rank] = max(answers.waits_s[rank], message.meta.pop("waited_s", 0.0))
        answers.values.setdefault(message.key, message)
        answers.count += 1
        if answers.count == len(chunk.sizes) * len(self._group.members):
            self._spread(*where, self._answers.pop(where))

    def _spread(self, chunk: int, round_: int, answers: _Answers) -> None:
        values = [answers.values[key] for key in sorted(answers.values)]
        meta, parts = pack([Entry((), value.key, value.parts, value.meta) for value in values])
        about = {"root": self._group.root, "entries": meta} | (
            {"waits": answers.waits_s} if any(answers.waits_s) else {}
        )
        priority = max(value.priority for value in values)
        tree, following = self._trees.get(chunk), self._planned.get(chunk)
        if tree is not None and following is not None and tree.parents != following.parents:
            about["parents"] = list(following.parents)
            self._trees[chunk] = following
        self._spreads[chunk] = Message(MessageKind.SPREAD, chunk, round_, about, parts, priority)
        if isinstance(self._policy, ScheduledOverlay):
            self._begin(self._policy.ready(False, chunk, round_, self._group.root))
            return
        assert tree is not None, "every chunk has a tree"
        for child in tree.children(ROOT):
            self._world.spawn(self._send_down(chunk, self._group.members[child]), "send values")

    async def _send_down(self, chunk: int, to: str) -> None:
        held = self._spreads[chunk]
        message = Message(MessageKind.SPREAD, chunk, held.round, held.meta, held.parts, held.priority)
        await self._world.send(*by_way(self._world, self._group, self._detours, to, message))

    # ---- words with members -------------------------------------------------------------------------------------

    def _on_ask(self, message: Message) -> None:
        assert isinstance(self._policy, ScheduledOverlay), "members of a tree ask nothing"
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
                self._world.spawn(self._tell(transfer), "tell")

    async def _tell(self, transfer: OverlayTransfer) -> None:
        about = {"root": self._group.root, "up": transfer.up, "to": transfer.target}
        message = Message(MessageKind.TELL, transfer.chunk, transfer.round, about, priority=CONTROL_PRIORITY)
        await self._world.send(transfer.source, message)
