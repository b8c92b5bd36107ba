"""A data centre whose workers sum among themselves before they push to their local server (``inside`` of hips).

The training workers sum their contributions at the first of them, bucket by bucket. The first worker pushes the sum,
which counts for all, and sends the replies on to the others. So the local server has one member, and the tiers above
are unchanged. Contributions are weighted before they are summed, so only the order of additions differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed import buffers
from testbed.engine import coding
from testbed.engine.aggregation import merge_notes
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.sums import OwnSiteSums, SiteSums
from testbed.engine.keys import Declaration, KeyPush
from testbed.engine.kvworker import KVWorker
from testbed.engine.local_work import copying
from testbed.engine.reply import PULL_ROUND, ReplyControl, Value, merge_controls
from testbed.engine.slicing import needs_loss
from testbed.placing import SIZES_ONLY, place_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.options import inside_of
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.shard.slices import grouped
from testbed.state import Remembering
from testbed.world import World

BUCKET_BYTES = 25_000_000  # largest bucket that is summed together, the same as the default without servers
_SEGMENTS = 8  # pieces of a bucket, so that as many neighbours send at the same time
_CPU = torch.device("cpu")


MakeLibrary = Callable[[Any, Plan, Collectives], Awaitable[SiteSums]]
"""Makes a library's sums from the world, the Plan, and this project's own operations among the same workers."""


def neighbours_of(plan: Plan, node: NodePlan) -> tuple[str, ...]:
    """Return the workers with which ``node`` sums before the push, itself included, in rank order.

    Return an empty tuple if it pushes for itself.
    """
    if inside_of(plan.technique.paradigm.options) is None or not node.trains:
        return ()
    names = tuple(worker.name for worker in plan.training_workers if worker.data_center == node.data_center)
    return names if len(names) > 1 else ()


async def inside_store(
    world: World, plan: Plan, store: KVWorker, mail: CollectiveMail, make_library: MakeLibrary | None
) -> InsideStore:
    """Return the store of a worker that sums with its neighbours.

    store  the worker's own connection to the local server, which only the first worker uses
    """
    inside = inside_of(plan.technique.paradigm.options)
    assert inside is not None, "the Plan says who sums inside"
    assert (make_library is not None) == inside.library, "a library sums where the Plan names one"
    node = plan.node(world.node)
    names = neighbours_of(plan, node)
    place = place_of(plan, node)
    shape = GroupShape(len(names), segments=_SEGMENTS if len(names) > 2 else 1)
    group = Collectives(world, mail, names, shape=shape, name="inside")
    group.round = PULL_ROUND
    sums = await make_library(world, plan, group) if make_library else OwnSiteSums(world, group)
    return InsideStore(world, store, group, sums, place if inside.on_gpu or place == SIZES_ONLY else _CPU, plan)


class InsideStore(Remembering):
    """Replaces a worker's ``KVWorker``, with the same methods. It has no codec, and so no state.

    ``place``: the device on which contributions are summed and values are handed out.
    """

    def __init__(
        self, world: World, store: KVWorker, group: Collectives, sums: SiteSums, place: torch.device, plan: Plan
    ) -> None:
        self._world = world
        self._store = store
        self._group = group
        self._sums = sums
        self._place = place
        self._gathers_notes = needs_loss(plan)
        self._sizes: tuple[int, ...] = ()
        self._buckets: list[list[int]] = []
        self._bucket_of: dict[int, int] = {}
        self._contributions: dict[int, Tensor] = {}
        self._notes: dict[str, Any] = {}
        self._values: dict[int, Value] = {}
        self.first_control = ReplyControl()

    @property
    def _is_first(self) -> bool:
        return self._group.rank == 0

    async def declare(self, declaration: Declaration) -> None:
        """Declare keys like ``KVWorker.declare``: the first worker does it for all."""
        assert not declaration.widths, "tables travel whole here"
        self._sizes = tuple(declaration.sizes.values())
        self._buckets = grouped(range(len(self._sizes)), self._sizes, BUCKET_BYTES)
        self._bucket_of = {key: number for number, bucket in enumerate(self._buckets) for key in bucket}
        if self._is_first:
            await self._store.declare(declaration)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any] | None = None) -> None:
        """Set first values like ``KVWorker.init``. The master worker is the first of its data centre."""
        assert self._is_first, "the first worker of all is the first of its data centre"
        await self._store.init(key, tensor, notes)

    async def pull(self, keys: Sequence[int]) -> list[Tensor]:
        """Pull like ``KVWorker.pull``; ``keys`` are all keys."""
        tensors = dict(zip(keys, await self._store.pull(keys), strict=True)) if self._is_first else {}
        for number, bucket in enumerate(self._buckets):
            mine = [Value(tensors[key], self._store.first_control) for key in bucket] if self._is_first else []
            await self._hand_out(number, mine, PULL_ROUND)
        values = [self._values.pop(key) for key in keys]
        self.first_control = merge_controls([value.control for value in values])
        return [value.tensor for value in values]

    def push(self, push: KeyPush) -> Coroutine[Any, Any, None]:
        """Push like ``KVWorker.push``, all keys in ascending order. The last key of a bucket starts its sum."""
        self._contributions[push.key] = push.tensor
        self._notes |= push.notes
        number = self._bucket_of[push.key]
        return self._add_up(number, push.round) if push.key == self._buckets[number][-1] else _nothing()

    async def _add_up(self, number: int, round_: int) -> None:
        """Sum a bucket and push its keys. The workers' notes travel with the first key of all."""
        self._group.round = round_
        bucket = self._buckets[number]
        mine = [self._contributions.pop(key) for key in bucket]
        flat = await self._world.compute(copying(mine), lambda: buffers.joined(mine))
        if self._place == _CPU:
            flat = await coding.exact(self._world, flat)
        notes = await self._gather_notes() if number == 0 else {}
        total = await self._sums.reduce(flat, number, round_)
        if self._is_first:
            for key, part in zip(bucket, self._split(total, bucket), strict=True):
                await self._store.push(KeyPush(key, round_, part, notes if key == bucket[0] else {}))

    async def _gather_notes(self) -> dict[str, Any]:
        notes, self._notes = self._notes, {}
        if not self._gathers_notes:
            return notes
        gathered, _ = await self._group.all_gather_parts((_as_tensor(notes),))
        return merge_notes([_as_notes(part) for (part,) in gathered])

    async def value(self, key: int, round_: int) -> Value:
        """Return a value like ``KVWorker.value``; to be called for all keys in ascending order."""
        if key not in self._values:
            number = self._bucket_of[key]
            keys = self._buckets[number] if self._is_first else ()
            await self._hand_out(number, [await self._store.value(key, round_) for key in keys], round_)
        return self._values.pop(key)

    async def _hand_out(self, number: int, mine: Sequence[Value], round_: int) -> None:
        """Broadcast a bucket's values, and the servers' notes on them, from the first worker to all.

        mine  the values at the first worker; elsewhere empty
        """
        bucket = self._buckets[number]
        control = merge_controls([value.control for value in mine])
        (told,) = await self._group.broadcast_parts((_as_tensor(control.to_meta()),))
        tensors = [value.tensor for value in mine]
        if self._is_first:
            flat = await self._world.compute(copying(tensors), lambda: buffers.joined(tensors))
        else:
            flat = torch.empty(sum(self._sizes[key] for key in bucket), device=self._place)
        flat = await self._sums.broadcast(flat, number, round_)
        control = ReplyControl(**_as_notes(told))
        for key, part in zip(bucket, tensors or self._split(flat, bucket), strict=True):
            self._values[key] = Value(part, control)

    def _split(self, flat: Tensor, keys: Sequence[int]) -> Sequence[Tensor]:
        return torch.split(flat, [self._sizes[key] for key in keys])


async def _nothing() -> None:
    pass


def _as_tensor(notes: Mapping[str, Any]) -> Tensor:
    # MessagePack gives a float the same size whatever its value, so byte counts are equal in every world
    return torch.frombuffer(bytearray(msgspec.msgpack.encode(notes)), dtype=torch.uint8)


def _as_notes(text: Tensor) -> dict[str, Any]:
    notes: dict[str, Any] = msgspec.msgpack.decode(bytes(text.tolist()))
    return notes
