"""How one bucket of gradients is summed over the workers: dense, by any all-reduce, or the largest elements only.

What is not sent is kept and added to the next tensor (error feedback). Gradients come, and sums go, where the worker
computes: what is chosen or encoded is so there, and only that is copied; a dense sum is made in main memory.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from testbed.codec.base import Codec, SummedCodec
from testbed.codec.memory import Memories, ResidualMemory, take_finite
from testbed.codec.selectors.chance import RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.engine import coding
from testbed.engine.aggregation import sum_in_order
from testbed.engine.collectives.buffers import Parts
from testbed.engine.collectives.collectives import Collectives
from testbed.messages import Message, MessageKind
from testbed.policy.collective import SELECTORS, Algorithm
from testbed.state import PartsByKey, Remembering, Stateful
from testbed.world import Work, World

Choice = tuple[Tensor, Tensor]  # ascending indices (int64), and their values


def _memories(selector: str, seed: int, sender: str) -> Memories:
    if selector == "exact":
        return Memories(SampleAndSweep(seed))
    return Memories(PublishedMsTopk(seed, sender) if selector == "published" else RandomK(seed, sender))


def top_count(elements: int, density: float) -> int:
    """Return k for a share of ``elements``: rounded, at least one, and none of nothing."""
    return min(elements, max(1, round(elements * density)))


class OwnChoice(Remembering):
    """A share ``density`` of what this worker holds, which ``selector`` chooses; the rest is kept (error feedback).

    A selector that draws does so by worker and ``bucket``: with equal positions at all workers, each round would send
    the same few elements of the sum.
    """

    remembers = ("_make", "_memories")

    def __init__(self, world: World, density: float, seed: int, selector: str, bucket: int = 0) -> None:
        self._world = world
        self._density = density
        self._bucket = bucket
        self._sweeps = SELECTORS[selector]
        self._make = _memories(selector, seed, world.node)
        self._memories: PartsByKey[int, ResidualMemory] = PartsByKey()  # one, made when the size of the bucket is known

    async def __call__(self, tensor: Tensor, round_: int) -> Choice:
        count = top_count(tensor.numel(), self._density)
        work = Work("select", round_, size_bytes=self._sweeps * tensor.nbytes)
        return await self._world.compute(work, lambda: self._take(tensor, count))

    def _take(self, tensor: Tensor, count: int) -> Choice:
        if tensor.is_meta:
            return torch.empty(count, dtype=torch.int64, device="meta"), tensor[:count]
        if self._bucket not in self._memories:
            self._memories[self._bucket] = self._make(tensor.numel(), tensor.device, self._bucket)
        return take_finite(self._memories[self._bucket], self._bucket, tensor, count)


class BucketSum(Stateful, Protocol):
    """How one bucket is summed. It may keep residuals for later rounds."""

    def __call__(self, gradient: Tensor, round_: int, flag: bool) -> Coroutine[Any, Any, tuple[Tensor, bool]]:
        """Return the sum of all workers' gradients, and whether one raised its flag: the same at every worker."""


class DenseSum(Remembering):
    """All elements, by an all-reduce."""

    def __init__(self, world: World, collectives: Collectives, algorithm: Algorithm) -> None:
        self._world = world
        self._collectives = collectives
        self._algorithm = algorithm

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._collectives.round = round_
        mine = await coding.exact(self._world, gradient)
        total, flag = await self._collectives.all_reduce_flagged(mine, flag, self._algorithm)
        (placed,) = await coding.to_device(self._world, (total,), gradient.device)
        return placed, flag


class GatheredSum(Remembering):
    """Each worker's payload to every other, around the ring; all decode and add them up in rank order.

    For codecs whose payloads cannot be added up on the way. What a codec keeps back is of its worker and bucket, and
    so is what it remembers or draws to decode: ``make_codec`` returns one end of the connection of a worker.
    """

    remembers = ("_codec", "_decoders")

    def __init__(self, world: World, workers: Collectives, make_codec: Callable[[str], Codec], bucket: int) -> None:
        self._world = world
        self._workers = workers
        self._bucket = bucket
        self._codec = make_codec(workers.ranks[workers.rank])  # of what this worker sends
        self._decoders = PartsByKey(make_codec)  # of what each has sent, this one included

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._workers.round = round_
        parts = await coding.encode(self._world, self._codec, self._bucket, gradient, round_)
        parcels, flag = await self._workers.all_gather_parts(parts, flag=flag)
        decoded = []
        for worker, parcel in zip(self._workers.ranks, parcels, strict=True):
            codec = self._codec if gradient.is_meta else self._decoders[worker]  # nothing is remembered of sizes
            message = Message(MessageKind.COLLECTIVE, self._bucket, round_, parts=parcel)
            decoded.append(await coding.decode(self._world, codec, message, gradient.numel()))
        work = Work("sum", round_, size_bytes=gradient.nbytes * len(decoded))
        return await self._world.compute(work, lambda: sum_in_order(decoded)), flag


class StepwiseSum(Remembering):
    """What a ``SummedCodec`` asks for, each by an all-reduce; every worker ends with the same bits."""

    remembers = ("_codec",)

    def __init__(
        self, world: World, collectives: Collectives, algorithm: Algorithm, codec: SummedCodec, bucket: int
    ) -> None:
        self._world = world
        self._collectives = collectives
        self._algorithm = algorithm
        self._codec = codec
        self._bucket = bucket

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._collectives.round = round_

        async def sum_up(part: Tensor) -> Tensor:
            nonlocal flag
            mine = await coding.exact(self._world, part.flatten())
            total, flag = await self._collectives.all_reduce_flagged(mine, flag, self._algorithm)
            (placed,) = await coding.to_device(self._world, (total.view(part.shape),), gradient.device)
            return placed

        ranks = self._collectives.size
        total = await coding.summed(self._world, self._codec, self._bucket, gradient, ranks, round_, sum_up)
        return total, flag


class SiteSums(Protocol):
    """What moves tensors among the training workers of a data centre, all of which call it in the same order."""

    async def reduce(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """Return the sum of all workers' tensors at the first one; elsewhere any tensor."""

    async def broadcast(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """Return the first worker's tensor; elsewhere ``tensor`` only says how large it is. It may be written to."""

    async def reduce_scatter(self, tensor: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return this worker's part of the sum, where ``tensor`` is, and a flag that ``all_gather`` is to be given."""

    async def all_gather(self, part: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return all workers' parts, joined, and whether one of them raised its flag."""


class OwnSiteSums:
    """By this project's own operations, around a ring in main memory. One worker alone has all."""

    def __init__(self, world: World, inside: Collectives) -> None:
        self._world = world
        self._inside = inside

    async def reduce(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        return await self._inside.reduce(tensor)

    async def broadcast(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        return await self._inside.chain_broadcast(tensor)

    async def reduce_scatter(self, tensor: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._inside.round = round_
        if self._inside.size == 1:
            return tensor, flag
        mine, flag = await self._inside.reduce_scatter(await coding.exact(self._world, tensor), flag)
        (part,) = await coding.to_device(self._world, (mine,), tensor.device)
        return part, flag

    async def all_gather(self, part: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        if self._inside.size == 1:
            return part, flag
        mine = await coding.exact(self._world, part)
        parts, flag = await self._inside.all_gather_parts((mine,), flag=flag)
        whole = torch.cat([each for (each,) in parts])
        (placed,) = await coding.to_device(self._world, (whole,), part.device)
        return placed, flag


class TopKSum(Remembering):
    """The sum of chosen elements only: dense inside a group, what each chose of its sum between groups.

    Reduce-scatter ``inside``; each worker chooses from its shard of that sum, where also the residual is kept; workers
    with the same shard exchange what they chose ``across``, add it up, and all-gather ``inside``. Order of a sum:
    inside around the ring, then group by group.

    Where the groups are data centres it is HiTopKComm (Shi et al., MLSys 2021), with as many streams between two as
    each has workers; where every worker is a group alone, the flat baseline.

    direct  each worker sends to each other ``across``; otherwise around a ring
    """

    remembers = ("_choose",)

    def __init__(
        self,
        world: World,
        inside: SiteSums,
        across: Collectives,
        choose: OwnChoice,
        bucket: int,
        *,
        direct: bool = False,
    ) -> None:
        self._world = world
        self._inside = inside
        self._across = across
        self._choose = choose
        self._bucket = bucket
        self._direct = direct

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._across.round = round_
        shard, flag = await self._inside.reduce_scatter(gradient, self._bucket, round_, flag)
        chosen = await coding.to_host(self._world, _to_wire(await self._choose(shard, round_)))
        parcels, flag = await self._across.all_gather_parts(chosen, direct=self._direct, flag=flag)
        total = await scattered(self._world, shard, parcels, round_)
        return await self._inside.all_gather(total, self._bucket, round_, flag)


async def scattered(world: World, like: Tensor, parcels: Sequence[Parts], round_: int) -> Tensor:
    """Return the sum of sparse contributions, dense, of the size and on the device of ``like``, in the order given."""
    placed = [await coding.to_device(world, parcel, like.device) for parcel in parcels]

    def add() -> Tensor:
        total = torch.zeros_like(like)
        for indices, values in placed:
            total.index_add_(0, indices.long(), values)
        return total

    size_bytes = like.nbytes + sum(part.nbytes for parts in parcels for part in parts)
    return await world.compute(Work("sum", round_, size_bytes=size_bytes), add)


def _to_wire(choice: Choice) -> Parts:
    """Return pairs of 8 bytes: int32 index and float32 value."""
    indices, values = choice
    return indices.to(torch.int32), values.contiguous()
