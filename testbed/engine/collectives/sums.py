"""Sums one bucket of gradients over the workers: densely, by any all-reduce, or only its largest elements.

Elements that are not sent are kept and added to the next tensor (error feedback). Gradients and their sums are on the
worker's device. Elements are chosen or encoded there, and only these are copied to main memory. A dense sum is made in
main memory.
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
    """Return k, the share ``density`` of ``elements``: rounded, and at least 1 unless there are no elements."""
    return min(elements, max(1, round(elements * density)))


class OwnChoice(Remembering):
    """Lets ``selector`` choose a share ``density`` of this worker's tensor, and keeps the rest (error feedback).

    A random selector draws differently for each worker and ``bucket``. If all workers drew the same positions, a round
    would send only those few elements of the sum.
    """

    remembers = ("_make", "_memories")

    def __init__(self, world: World, density: float, seed: int, selector: str, bucket: int = 0) -> None:
        self._world = world
        self._density = density
        self._bucket = bucket
        self._sweeps = SELECTORS[selector]
        self._make = _memories(selector, seed, world.node)
        self._memories: PartsByKey[int, ResidualMemory] = PartsByKey()  # only one; made when the bucket's size is known

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
        """Return the sum of all workers' gradients, and whether any worker raised its flag; equal at all workers."""


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
    """All workers get every worker's payload around the ring, decode all payloads and add them up in rank order.

    It is for codecs whose payloads cannot be added on the way. A codec's residual belongs to one worker and bucket, and
    so does its state for decoding. So ``make_codec`` makes a codec for one worker's payloads.
    """

    remembers = ("_codec", "_decoders")

    def __init__(self, world: World, workers: Collectives, make_codec: Callable[[str], Codec], bucket: int) -> None:
        self._world = world
        self._workers = workers
        self._bucket = bucket
        self._codec = make_codec(workers.ranks[workers.rank])  # encodes this worker's payloads
        self._decoders = PartsByKey(make_codec)  # by worker, including this one: decodes its payloads

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._workers.round = round_
        parts = await coding.encode(self._world, self._codec, self._bucket, gradient, round_)
        parcels, flag = await self._workers.all_gather_parts(parts, flag=flag)
        decoded = []
        for worker, parcel in zip(self._workers.ranks, parcels, strict=True):
            codec = self._codec if gradient.is_meta else self._decoders[worker]  # without data, decoders need no state
            message = Message(MessageKind.COLLECTIVE, self._bucket, round_, parts=parcel)
            decoded.append(await coding.decode(self._world, codec, message, gradient.numel()))
        work = Work("sum", round_, size_bytes=gradient.nbytes * len(decoded))
        return await self._world.compute(work, lambda: sum_in_order(decoded)), flag


class StepwiseSum(Remembering):
    """Sums by an all-reduce each tensor that a ``SummedCodec`` asks for; all workers end with the same bits."""

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
    """Moves tensors among the training workers of a data centre, all of which call it in the same order."""

    async def reduce(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """Return the sum of all workers' tensors at the first worker; elsewhere the result has no meaning."""

    async def broadcast(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """Return the first worker's tensor. The others' ``tensor`` only gives the size, and may be overwritten."""

    async def reduce_scatter(self, tensor: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return this worker's part of the sum, on the device of ``tensor``, and the flag to pass to ``all_gather``."""

    async def all_gather(self, part: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return all workers' parts, joined, and whether any of them raised its flag."""


class OwnSiteSums:
    """Uses this project's own operations, around a ring in main memory. A worker alone needs no transfer."""

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
    """Sums densely inside a group, and only chosen elements between groups.

    The workers of a group reduce-scatter ``inside``. Each worker chooses elements from its shard of the group's sum,
    and keeps the residual. Workers with the same shard exchange the chosen elements ``across`` groups and add them up.
    Then each group all-gathers ``inside``. Order of a sum: inside around the ring, then group by group.

    If the groups are data centres, this is HiTopKComm (Shi et al., MLSys 2021), with as many streams between two data
    centres as each has workers. If every worker is a group of its own, it is the flat baseline.

    direct  whether workers ``across`` groups send directly to each other; otherwise around a ring
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
    """Return the dense sum of sparse contributions, added in the order given; size and device are those of ``like``."""
    placed = [await coding.to_device(world, parcel, like.device) for parcel in parcels]

    def add() -> Tensor:
        total = torch.zeros_like(like)
        for indices, values in placed:
            total.index_add_(0, indices.long(), values)
        return total

    size_bytes = like.nbytes + sum(part.nbytes for parts in parcels for part in parts)
    return await world.compute(Work("sum", round_, size_bytes=size_bytes), add)


def _to_wire(choice: Choice) -> Parts:
    """Return indices as int32 and values as float32: 8 bytes per element."""
    indices, values = choice
    return indices.to(torch.int32), values.contiguous()
