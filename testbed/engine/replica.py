"""A global server's replica: it makes every step that the server makes, and takes its place when it dies.

Chain replication after aggregation (Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI
2014): not the pushes of many children are copied but what they were combined to, once, and nobody is answered before
the replica has it. So whatever any child knows, the replica knows. When the server is gone, children declare their keys
to the replica, and push again what was not answered. Steps that the replica has made already it answers at once; what
the server had not combined yet is combined here. No step is lost, none is made twice, and all have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine.inbox import Handler, Inbox
from testbed.engine.kvworker import PULL_ROUND, CodecChoice, ReplyControl, Value
from testbed.engine.upstream import AggregatedPush, RootStore
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

NO_KEY = -1  # and below: each member that has joined has a number of its own, as two may join in one round


class Chain:
    """The top of a server that has a replica: what ``top`` does is done there as well before anybody hears of it."""

    is_top = True

    def __init__(self, world: World, inbox: Inbox, top: RootStore, replica: str) -> None:
        self._world, self._top, self._replica = world, top, replica
        self._alone = False
        self._joined = 0
        self._on_their_way: dict[tuple[int, int], Future[None]] = {}
        inbox.on(MessageKind.COPIED, self._on_copied)

    async def declare(self, sizes: dict[int, int], codec: CodecChoice | None) -> None:
        await self._top.declare(sizes, codec)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        await self._copy(Message(MessageKind.COPY, key, PULL_ROUND, {"notes": dict(notes)}, (tensor,)))
        await self._top.init(key, tensor, notes)

    async def pull(self, key: int) -> Tensor:
        return await self._top.pull(key)

    @property
    def first(self) -> ReplyControl:
        return self._top.first

    async def apply(self, total: AggregatedPush) -> Value:
        value = await self._top.apply(total)
        said = {"members": list(total.members), "notes": total.notes}
        await self._copy(Message(MessageKind.COPY, total.key, total.round, said, (total.tensor,)))
        return value

    async def joined(self, member: str, begin: int) -> None:
        """``member`` is to take part from round ``begin`` on. Returns when the replica knows it."""
        self._joined += 1
        await self._copy(Message(MessageKind.COPY, NO_KEY - self._joined, begin, {"joined": member}))

    def on_value_sent(self, key: int, value: Tensor, member: str) -> None:
        self._top.on_value_sent(key, value, member)

    async def leave(self) -> None:
        await self._top.leave()

    def state(self) -> dict[str, Any]:
        return self._top.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._top.load_state(state)

    def lost(self, nodes: Iterable[str]) -> None:
        """These are gone; without the replica, this goes on alone."""
        if self._replica in nodes:
            self._alone = True
            for future in self._on_their_way.values():
                future.set_result(None)
            self._on_their_way.clear()

    async def _copy(self, message: Message) -> None:
        if self._alone:
            return
        arrived = self._on_their_way[message.key, message.round] = self._world.future()
        await self._world.send(self._replica, message)
        await self._world.wait(arrived, f"round {message.round} of key {message.key} to be copied by {self._replica}")

    def _on_copied(self, message: Message) -> None:
        arrived = self._on_their_way.pop((message.key, message.round), None)
        if arrived is not None:
            arrived.set_result(None)


class Copies:
    """The replica's side: makes the server's steps, and is the mail of the server that it may have to become.

    ``on_made`` is told of every round of which a key's step has been made, ``on_joined`` of members and their first
    rounds.
    """

    def __init__(self, world: World, inbox: Inbox, top: RootStore, codec: Callable[[], Codec]) -> None:
        self._world, self._inbox, self._top, self._codec = world, inbox, top, codec
        self.on_made: Callable[[int], None] = lambda round_: None
        self.on_joined: Callable[[str, int], None] = lambda member, begin: None
        self._copied: dict[int, int] = {}  # by key: the last round whose step the server has told
        self._taken: dict[int, int] = {}  # by key: the last round that children have pushed here, as the server is gone
        self._made: dict[int, Future[None]] = {}  # by key: the step of the last round that was told
        self._last = False
        inbox.on(MessageKind.COPY, self._on_copy)

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """As ``Inbox.on``; pushes whose step has been made already are answered here."""
        if kind is MessageKind.PUSH:
            self._inbox.on(kind, lambda message: self._on_push(message, handler))
        else:
            self._inbox.on(kind, handler)

    def _on_copy(self, message: Message) -> None:
        self._world.spawn(self._follow(message), f"copy round {message.round} of key {message.key}")

    async def _follow(self, message: Message) -> None:
        key, round_ = message.key, message.round
        if key <= NO_KEY:
            self.on_joined(message.meta["joined"], round_)
        elif round_ == PULL_ROUND:
            await self._top.init(key, message.parts[0], message.meta["notes"])
        elif round_ <= self._taken.get(key, PULL_ROUND):
            return  # the last words of a server that is gone: nobody was answered, all push that round here
        else:
            await self._step(message)
        await self._world.send(message.sender, Message(MessageKind.COPIED, key, round_))

    async def _step(self, message: Message) -> None:
        key, round_, members = message.key, message.round, tuple(message.meta["members"])
        self._copied[key], self._made[key] = round_, self._world.future()
        value = await self._top.apply(AggregatedPush(key, round_, message.parts[0], members, message.meta["notes"]))
        self._last = self._last or value.advice.last
        self.on_made(round_)
        self._made[key].set_result(None)

    def _on_push(self, message: Message, handler: Handler) -> None:
        if message.round > self._copied.get(message.key, PULL_ROUND):
            self._taken[message.key] = message.round
            handler(message)
        else:
            self._world.spawn(self._answer(message), f"answer round {message.round} of key {message.key} again")

    async def _answer(self, message: Message) -> None:
        """No later step has been made, for it would need another push of this child."""
        await self._world.wait(self._made[message.key], f"round {message.round} of key {message.key} to be copied")
        value = await self._top.pull(message.key)
        parts = self._codec().encode_value(message.key, value)
        meta = ReplyControl(last=self._last).to_meta()
        await self._world.send(
            message.sender, Message(MessageKind.VALUE, message.key, message.round, meta, parts, message.priority)
        )
