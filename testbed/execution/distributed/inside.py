"""Sums by a library among the training workers of a data centre: below the servers of ``hips``, and for HiTopKComm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from testbed.engine import coding
from testbed.engine.collectives.collectives import Collectives
from testbed.execution.distributed.torch_group import Group, make_group
from testbed.plan.model import Plan
from testbed.realtime.world import RealWorld
from testbed.world import Work


async def make_library(world: RealWorld, plan: Plan, group: Collectives) -> LibraryInside:
    """Return the operations among the workers of ``group``, by the library that the Plan names."""
    library = plan.technique.paradigm.options["inside"]
    return LibraryInside(world, await make_group(world, plan, group, library), library, group)


class LibraryInside:
    """``SiteSums`` of the engine, by a library. Its bytes are recorded as one transfer per peer and operation.

    In records, key 2 b is the sum of bucket b, and 2 b + 1 the broadcast or all-gather of bucket b. The operations
    overwrite the tensors given to them.
    """

    def __init__(self, world: RealWorld, group: Group, library: str, ranks: Collectives) -> None:
        self._world = world
        self._group = group
        self._library = library
        self._ranks = ranks
        self._turn = asyncio.Lock()  # held from a bucket's reduce-scatter to its all-gather: all workers keep one order
        self._elements = 0  # of the bucket that holds the lock

    async def reduce(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        await self._run(lambda: self._group.start_reduce(tensor), 2 * bucket, round_)
        return tensor

    async def broadcast(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        await self._run(lambda: self._group.start_broadcast(tensor), 2 * bucket + 1, round_)
        return tensor

    async def reduce_scatter(self, tensor: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Pad shorter parts with zeros, as the library takes parts of equal size."""
        await self._turn.acquire()
        self._elements = tensor.numel()
        mine = tensor if self._group.on_gpu else await coding.exact(self._world, tensor)
        parts = [mine[start:stop] for start, stop in self._ranks.parts_of(self._elements)]
        width = max(part.numel() for part in parts)
        filled = await self._copied(mine, lambda: torch.cat([pad(part, (0, width - part.numel())) for part in parts]))
        total = torch.empty(width, dtype=mine.dtype, device=mine.device)
        await self._run(lambda: self._group.start_reduce_scatter(total, filled), 2 * bucket, round_)
        (placed,) = await coding.to_device(self._world, (total,), tensor.device)
        return placed[: parts[self._ranks.rank].numel()], flag

    async def all_gather(self, part: Tensor, bucket: int, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Send the flag as one more element."""
        mine = part if self._group.on_gpu else await coding.exact(self._world, part)
        sizes = [stop - start for start, stop in self._ranks.parts_of(self._elements)]
        width = max(sizes) + 1
        filled = await self._copied(mine, lambda: pad(mine, (0, width - mine.numel()), value=float(flag)))
        gathered = torch.empty(width * len(sizes), dtype=mine.dtype, device=mine.device)
        await self._run(lambda: self._group.start_all_gather(gathered, filled), 2 * bucket + 1, round_)
        self._turn.release()
        slots = gathered.view(len(sizes), width)
        ends = list(zip(slots, sizes, strict=True))
        whole = await self._copied(gathered, lambda: torch.cat([slot[:size] for slot, size in ends]))
        (placed,) = await coding.to_device(self._world, (whole,), part.device)
        return placed, bool(slots[:, -1].any())

    async def _copied(self, tensor: Tensor, copy: Callable[[], Tensor]) -> Tensor:
        return await self._world.compute(Work("copy", size_bytes=tensor.nbytes), copy)

    async def _run(self, start: Callable[[], asyncio.Future[None]], key: int, round_: int) -> None:
        began_s = self._world.now()
        await self._world.wait(start(), f"{self._library}'s operation {key} of round {round_}")
        for peer, size_bytes in sorted(self._group.received_bytes().items()):
            self._world.record_library_transfer(peer, size_bytes, began_s, message=self._library, key=key, round=round_)
