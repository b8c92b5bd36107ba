"""Chain replication of a global server: its replica repeats every update, and takes over when the server is lost.

The server copies to the replica not the pushes of its many children, but only their aggregate (Li et al., "Scaling
distributed machine learning with the parameter server", OSDI 2014, section 4.3: replication after aggregation). It
replies to no child before the replica has the update. The protocol of one key's round:

1. The server applies the aggregate and sends it to the replica (COPY). The replica applies it too, and confirms
   (COPIED).
2. Then the server replies to its children.
3. The loss of the server is a change of the membership like any other. Its children declare their keys to the replica
   and push again all contributions without a reply. If the replica has already updated that round, it replies with its
   value; otherwise it aggregates the pushes.

So the replica has every value that a child has received. No update is lost or applied twice, and all bits are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from testbed.devices.accelerator import CPU
from testbed.engine import coding
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.inbox import Inbox, Mail
from testbed.engine.reply import PULL_ROUND, Value
from testbed.engine.root_store import ParameterState, RootStore
from testbed.engine.server import Server
from testbed.messages import Message, MessageKind
from testbed.world import Future, World


class ReplicatedRootStore(RootStore):
    """The store of a server that has a replica: ``apply`` returns only after the replica has the update, too."""

    def __init__(
        self,
        world: World,
        inbox: Inbox,
        make_state: Callable[[Tensor], ParameterState],
        replica: str,
        device: torch.device = CPU,
        workers: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        super().__init__(world, make_state, device, waits=True, workers=workers)
        self._replica = replica
        self._replica_lost = False
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

    def on_members_lost(self, nodes: Sequence[str]) -> None:
        """Continue alone if the replica is among ``nodes``: stop waiting for its confirmations."""
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


class Copies:
    """The replica's side: repeats the global server's updates in ``server``, the replica's own, which may take over."""

    def __init__(self, world: World, inbox: Mail, top: RootStore, server: Server) -> None:
        self._world = world
        self._top = top
        self._server = server
        inbox.on(MessageKind.COPY, self._on_copy)

    def _on_copy(self, message: Message) -> None:
        if message.round != PULL_ROUND:
            self._server.begin_copy(message.key, message.round)
        self._world.spawn(self._repeat(message), f"copy round {message.round} of key {message.key}")

    async def _repeat(self, message: Message) -> None:
        key = message.key
        round_ = message.round
        meta = message.meta
        if round_ == PULL_ROUND:
            await self._top.init(key, message.parts[0], meta["notes"])
        else:
            total = AggregatedPush(key, round_, message.parts[0], tuple(meta["members"]), meta["notes"])
            self._server.take_value(key, round_, await self._top.apply(total))
        await self._world.send(message.sender, Message(MessageKind.COPIED, key, round_))
