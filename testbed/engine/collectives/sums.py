"""How one bucket of gradients is summed over the workers: dense, by any all-reduce, or the largest elements only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from testbed.engine.collectives.buffers import Parts
from testbed.engine.collectives.choice import Choice, Chooser
from testbed.engine.collectives.collectives import Collectives
from testbed.policy.collective import Algorithm
from testbed.world import Work, World


class BucketSum(Protocol):
    """One bucket's sums, round after round; it may keep residuals for later rounds."""

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return the sum of all workers' gradients, and whether one raised its flag: the same at every worker."""


class DenseSum:
    """All elements, by an all-reduce."""

    def __init__(self, collectives: Collectives, algorithm: Algorithm) -> None:
        self._collectives, self._algorithm = collectives, algorithm

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._collectives.round = round_
        return await self._collectives.all_reduce_flagged(gradient, flag, self._algorithm)


class FlatTopK:
    """Each worker's largest elements to every other worker: top-k all-gather, the flat baseline."""

    def __init__(self, world: World, workers: Collectives, choose: Chooser) -> None:
        self._world, self._workers, self._choose = world, workers, choose

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._workers.round = round_
        chosen = _to_wire(await self._choose(gradient, round_))
        parcels, flag = await self._workers.all_gather_parts(chosen, direct=True, flag=flag)
        return await scattered(self._world, gradient, parcels, round_), flag


class HiTopK:
    """HiTopKComm (Shi et al., MLSys 2021): between data centres only the largest elements of each one's sum travel.

    Reduce-scatter inside; each worker chooses from its shard of the data centre's sum, where also the residual is
    kept; workers with the same shard exchange what they chose, as many streams as a data centre has workers; they add
    it up, and all-gather inside. Order of a sum: inside around the ring, then data centre by data centre.
    """

    def __init__(self, world: World, inside: Collectives, across: Collectives, choose: Chooser) -> None:
        self._world, self._inside, self._across, self._choose = world, inside, across, choose

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        self._inside.round = self._across.round = round_
        shard, flag = await self._inside.reduce_scatter(gradient, flag)
        chosen = _to_wire(await self._choose(shard, round_))
        parcels, flag = await self._across.all_gather_parts(chosen, flag=flag)
        total = await scattered(self._world, shard, parcels, round_)
        shards, flag = await self._inside.all_gather_parts((total,), flag=flag)
        return torch.cat([part for (part,) in shards]), flag


async def scattered(world: World, like: Tensor, parcels: Sequence[Parts], round_: int) -> Tensor:
    """Return the sum of sparse contributions, dense with the size of ``like``, added in the order given."""

    def add() -> Tensor:
        total = torch.zeros_like(like)
        for indices, values in parcels:
            total.index_add_(0, indices.long(), values)
        return total

    size_bytes = like.nbytes + sum(part.nbytes for parts in parcels for part in parts)
    return await world.compute(Work("sum", round_, size_bytes=size_bytes), add)


def _to_wire(choice: Choice) -> Parts:
    """Return pairs of 8 bytes: int32 index and float32 value."""
    indices, values = choice
    return indices.to(torch.int32), values.contiguous()
