"""Chain replication of a global server: its replica repeats every update, and takes over when the server is lost.

Not the pushes of many children are copied but their aggregate, once (Li et al., "Scaling distributed machine learning
with the parameter server", OSDI 2014, section 4.3: replication after aggregation), and no child is answered before the
replica has the update. The protocol of one key's round:

1. The server applies the aggregate and sends it to the replica (COPY), which applies it as well and confirms (COPIED).
2. Then the server replies to its children.
3. When the server is lost, its children declare their keys to the replica and push again what was not answered.
   A round that the replica has updated it answers from its value; any other it aggregates from the pushes.

So whatever a child was told, the replica knows; no update is lost and none is applied twice, and all bits are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from testbed.devices.accelerator import CPU
from testbed.engine import coding
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.inbox import Handler, Inbox
from testbed.engine.kvworker import CodecChoice, CodecMaker
from testbed.engine.reply import PULL_ROUND, ReplyControl, Value
from testbed.engine.root_store import ParameterState, RootStore
from testbed.messages import Message, MessageKind
from testbed.world import Future, World

NO_KEY = -1  # COPY messages about members count down from here: two members may join before the same round


class ReplicatedRootStore(RootStore):
    """The store of a server that has a replica: ``apply`` returns when the replica has the update as well."""

    def __init__(
        self, world: World, inbox: Inbox, make_state: Callable[[Tensor], ParameterState], replica: str,
        device: torch.device = CPU, workers: Mapping[str, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(world, make_state, device, waits=True, workers=workers)
        self._replica = replica
        self._replica_lost = False
        self._joined_members = 0
        self._unconfirmed: dict[tuple[int, int], Future[None]] = {}
        inbox.on(MessageKind.COPIED, self._on_copied)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        await self._copy(Message(MessageKind.COPY, key, PULL_ROUND, {"notes": dict(notes)}, (tensor,)))
        await super().init(key, tensor, notes)

    async def apply(self, total: AggregatedPush) -> Value:
        value = await super().apply(total)
        meta = {"members": list(total.members), "notes": total.notes}
        copied = await coding.exact(self._world, total.tensor)
        await self._copy(Message(MessageKind.COPY, total.key, total.round, meta, (copied,)))
        return value

    def on_joined(self, member: str, begin: int, epoch: int) -> Coroutine[Any, Any, None]:
        """Return the coroutine that ends when the replica knows of ``member``."""
        self._joined_members += 1
        meta = {"joined": member, "epoch": epoch}
        return self._copy(Message(MessageKind.COPY, NO_KEY - self._joined_members, begin, meta))

    def on_members_lost(self, nodes: Iterable[str]) -> None:
        """Continue alone if the replica is among ``nodes``: nothing waits for its confirmation any more."""
        if self._replica in nodes:
            self._replica_lost = True
            for future in self._unconfirmed.values():
                future.set_result(None)
            self._unconfirmed.clear()

    async def _copy(self, message: Message) -> None:
        if self._replica_lost:
            return
        confirmed = self._unconfirmed[message.key, message.round] = self._world.future()
        await self._world.send(self._replica, message)
        await self._world.wait(confirmed, f"{self._replica} to copy round {message.round} of key {message.key}")

    def _on_copied(self, message: Message) -> None:
        confirmed = self._unconfirmed.pop((message.key, message.round), None)
        if confirmed is not None:
            confirmed.set_result(None)


class ReplicaMail:
    """The replica's side: repeats the server's updates, and filters the mail of the ``Server`` that may take over.

    on_updated  is called with the round of every update that was repeated
    on_joined   is called with a member, its first round, and the membership epoch in which it has joined
    """

    def __init__(self, world: World, inbox: Inbox, top: RootStore, make_codec: CodecMaker) -> None:
        self._world, self._inbox, self._top, self._make_codec = world, inbox, top, make_codec
        self._choices: dict[str, CodecChoice | None] = {}  # by child
        self.on_updated: Callable[[int], None] = lambda round_: None
        self.on_joined: Callable[[str, int, int], None] = lambda member, begin, epoch: None
        self._copied_round: dict[int, int] = {}  # by key: the last round that the server has sent
        self._pushed_round: dict[int, int] = {}  # by key: the last round that a child has pushed here
        self._updated: dict[int, Future[None]] = {}  # by key: the update of the last copied round
        self._last = False
        inbox.on(MessageKind.COPY, self._on_copy)

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``; pushes of rounds that are updated already are answered here."""
        if kind is MessageKind.PUSH:
            self._inbox.on(kind, lambda message: self._on_push(message, handler))
        elif kind is MessageKind.DECLARE:
            self._inbox.on(kind, lambda message: self._on_declare(message, handler))
        else:
            self._inbox.on(kind, handler)

    def _on_copy(self, message: Message) -> None:
        self._world.spawn(self._repeat(message), f"copy round {message.round} of key {message.key}")

    async def _repeat(self, message: Message) -> None:
        key, round_ = message.key, message.round
        if key <= NO_KEY:
            self.on_joined(message.meta["joined"], round_, message.meta["epoch"])
        elif round_ == PULL_ROUND:
            await self._top.init(key, message.parts[0], message.meta["notes"])
        elif round_ <= self._pushed_round.get(key, PULL_ROUND):
            # The server is lost, and this copy was still in flight when a child failed over. It replied to no child in
            # this round, so every child pushes it here: repeating the copy would apply the round twice.
            return
        else:
            await self._update(message)
        await self._world.send(message.sender, Message(MessageKind.COPIED, key, round_))

    async def _update(self, message: Message) -> None:
        key, round_, members = message.key, message.round, tuple(message.meta["members"])
        self._copied_round[key], self._updated[key] = round_, self._world.future()
        value = await self._top.apply(AggregatedPush(key, round_, message.parts[0], members, message.meta["notes"]))
        self._last = self._last or value.control.last
        self.on_updated(round_)
        self._updated[key].set_result(None)

    def _on_declare(self, message: Message, handler: Handler) -> None:
        self._choices[message.sender] = message.meta.get("codec")
        handler(message)

    def _on_push(self, message: Message, handler: Handler) -> None:
        if message.round > self._copied_round.get(message.key, PULL_ROUND):
            self._pushed_round[message.key] = message.round
            handler(message)
        else:
            self._world.spawn(self._reply(message), f"answer round {message.round} of key {message.key} again")

    async def _reply(self, message: Message) -> None:
        """Answer with the current value: a later update would need another push of this child."""
        await self._world.wait(self._updated[message.key], f"the update of key {message.key} in round {message.round}")
        value = await self._top.pull(message.key)
        codec = self._make_codec(self._choices.get(message.sender))  # which has no memory
        parts = await coding.encode_value(self._world, codec, message.key, value, message.round)
        meta = ReplyControl(last=self._last).to_meta()
        await self._world.send(
            message.sender, Message(MessageKind.VALUE, message.key, message.round, meta, parts, message.priority)
        )
