"""Sums in several steps at servers: a child pushes each tensor that a ``SummedCodec`` asks for, and pulls its sum.

In all-reduce, each sum is one operation. With servers, each sum is a key of its own, whose value after a round is the
sum of the members' pushes. For example, a matrix under PowerSGD has the key P, and then the key Q, which is computed
with the sum of P. Servers need not know of this, but they must send sums back, so the workers run the optimizer. A
local server does the same for the sum of its data centre.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed.codec.base import SummedCodec
from testbed.codec.table import make_codec
from testbed.engine import coding, sync_setup
from testbed.engine.keys import Declaration, DeclaredKey, KeyPush
from testbed.engine.kvworker import KVWorker
from testbed.engine.reply import ReplyControl, Value, merge_controls
from testbed.engine.slicing import sums_in_steps
from testbed.plan.model import NodePlan, Plan
from testbed.state import Remembering
from testbed.world import Future, World


class SummedStore(Remembering):
    """Replaces a child's ``KVWorker``, with the same methods. ``contributors``: the number of summed children."""

    remembers = ("_codec", "_store")

    def __init__(self, world: World, store: KVWorker, codec: SummedCodec, contributors: int) -> None:
        self._world = world
        self._store = store
        self._codec = codec
        self._contributors = contributors
        self._further: dict[int, tuple[int, ...]] = {}  # by key: the keys of its further sums
        self._sizes: dict[int, int] = {}  # by key of a further sum: its elements
        self._under_way: dict[tuple[int, int], Future[Value]] = {}

    @property
    def first_control(self) -> ReplyControl:
        return self._store.first_control

    @property
    def idle(self) -> bool:
        return not self._under_way and self._store.idle

    async def declare(self, declaration: Declaration) -> None:
        """As ``KVWorker.declare``, but without shapes: only the codec needs them, and it is at this node."""
        keys = {number: replace(key, shape=None) for number, key in declaration.keys.items()}
        for number, key in declaration.keys.items():
            if key.shape is not None:
                self._codec.declare(number, key.shape)
            further = self._codec.sums(number, key.size)
            self._further[number] = tuple(range(len(keys), len(keys) + len(further)))
            self._sizes |= dict(zip(self._further[number], further, strict=True))
            keys |= dict(zip(self._further[number], map(DeclaredKey, further), strict=True))
        await self._store.declare(replace(declaration, keys=keys))

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any] | None = None) -> None:
        await self._store.init(key, tensor, notes)
        for number in self._further[key]:
            await self._store.init(number, torch.zeros(self._sizes[number], device=tensor.device))

    async def pull(self, keys: Sequence[int], newest: bool = False) -> list[Tensor]:
        return await self._store.pull(keys, newest)

    def push(self, push: KeyPush) -> Coroutine[Any, Any, None]:
        """As ``KVWorker.push``; the first of the sums carries the ``notes``."""
        assert push.wanted is None, "tables travel whole here"
        self._under_way[push.key, push.round] = self._world.spawn(self._summed(push), f"sum key {push.key}")
        return _done()

    async def value(self, key: int, round_: int) -> Value:
        """Wait for the sum that the codec has made."""
        value = await self._world.wait(self._under_way[key, round_], f"sums of key {key} of round {round_}")
        del self._under_way[key, round_]
        return value

    async def leave(self) -> None:
        await self._store.leave()

    async def _summed(self, push: KeyPush) -> Value:
        tensor = push.tensor
        further = iter(self._further[push.key])
        controls: list[ReplyControl] = []

        async def sum_up(part: Tensor) -> Tensor:
            number = push.key if part.numel() == tensor.numel() else next(further)
            notes = push.notes if not controls else {}
            await self._store.push(msgspec.structs.replace(push, key=number, tensor=part.flatten(), notes=notes))
            value = await self._store.value(number, push.round)
            controls.append(value.control)
            return value.tensor.view(part.shape)

        contributors = self._contributors
        total = await coding.summed(self._world, self._codec, push.key, tensor, contributors, push.round, sum_up)
        control = merge_controls(controls)
        control.waited_s = sum(each.waited_s for each in controls)
        return Value(total, control, self._world.now())


async def _done() -> None:
    """Return at once: the push has begun as a task, and sends each part when it has the sums before it."""


def with_sums(world: World, plan: Plan, node: NodePlan, store: KVWorker) -> KVWorker | SummedStore:
    """Return the store with which ``node`` pushes: ``store``, or one around it that sums in several steps."""
    server = plan.node(node.parents[0])
    tier = 1 if server.role == "server" else 2
    if not sums_in_steps(plan, tier):
        return store
    choice = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
    codec = make_codec(choice.kind, choice.options, tier, seed=plan.seed)
    assert isinstance(codec, SummedCodec), f"{choice.kind} declares that it is summed"
    return SummedStore(world, store, codec, len(sync_setup.contributors(plan, server)))
