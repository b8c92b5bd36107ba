"""A local server with a model of its own: each contribution updates it, and at times it merges the global model.

The rules are those of HALoS (``policy.sync.halos``). A server replies to contributions with its newest local model, and
does not wait for the global server. After a number of updates, it pushes the change of the local model since the last
merging to the global server. It pushes the next change only after the reply.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.keys import KeyPush
from testbed.engine.kvworker import KVWorker
from testbed.engine.local_work import optimizer_work
from testbed.engine.reply import ReplyControl, Value
from testbed.engine.upstream import ParentServers
from testbed.policy.sync.base import LocalModel
from testbed.state import PartsByKey
from testbed.training.optimizers import KeyOptimizer
from testbed.world import Future, Work, World


class LocalModelStore(ParentServers):
    """The upstream of a local server with its own model: holds this model, and exchanges with the global servers."""

    remembers = ("_store", "_last", "_merged", "_updates", "_rounds", "_keys")

    def __init__(self, world: World, store: KVWorker, declared: LocalModel) -> None:
        super().__init__(world, store)
        self._model = declared
        self._keys: PartsByKey[int, KeyOptimizer] = PartsByKey(self._made)
        self._merged: dict[int, Tensor] = {}  # by key: the value after the last merging
        self._updates: dict[int, int] = {}  # by key: number of updates since the last merging
        self._rounds: dict[int, int] = {}  # by key: number of pushes to the global servers
        self._under_way: dict[int, Future[None]] = {}  # by key: the merging in progress
        self._last = False  # the global server has said that the run ends

    async def pull(self, key: int, newest: bool = False) -> Tensor:
        value = await super().pull(key, newest)
        if key not in self._keys:
            self._merged[key] = value.clone()
            self._keys[key] = self._made(key)
            self._updates[key] = 0
            self._rounds[key] = 0
        return value

    def _made(self, key: int) -> KeyOptimizer:
        return KeyOptimizer(self._model.optimizer, self._model.options, self._merged[key])

    async def apply(self, total: AggregatedPush) -> Value:
        key = total.key
        state = self._keys[key]

        def step() -> Tensor:
            state.step(total.tensor)
            return buffers.clone(state.value)

        value = await self._world.compute(optimizer_work([state], total.round), step)
        self._updates[key] += 1
        if self._updates[key] >= self._model.updates and key not in self._under_way:
            self._under_way[key] = self._world.spawn(self._merge(total), f"merge key {key} with the global model")
        return Value(value, ReplyControl(last=self._last))

    async def _merge(self, total: AggregatedPush) -> None:
        """Push the change of the local model, and merge the global model that comes in reply."""
        key = total.key
        state = self._keys[key]
        copying = Work("copy", total.round, size_bytes=state.value.nbytes)
        moved = await self._world.compute(copying, lambda: self._merged[key] - state.value)
        round_ = self._rounds[key]
        self._rounds[key] += 1
        notes: dict[str, Any] = {name: total.notes[name] for name in ("loss", "last") if name in total.notes}
        await self._store.push(KeyPush(key, round_, moved, notes, total.priority))
        answer = await self._store.value(key, round_)

        def merge() -> None:
            with torch.no_grad():
                state.value.lerp_(answer.tensor, self._model.merging)
            self._merged[key] = state.value.clone()

        await self._world.compute(copying, merge)
        self._updates[key] = 0
        self._last |= answer.control.last
        del self._under_way[key]

    async def settle(self) -> None:
        for merging in list(self._under_way.values()):
            await self._world.wait(merging, "the answer of the global server")

    async def leave(self) -> None:
        await self.settle()
        await super().leave()
