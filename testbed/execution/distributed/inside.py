"""Sums and broadcasts by a library among the training workers of a data centre, below the servers of ``hips``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.distributed.backends import BACKENDS, INSIDE_GROUPS
from testbed.execution.distributed.meeting import InsideGroup
from testbed.plan.model import Plan
from testbed.realtime.world import RealWorld


def require(plan: Plan, nodes: Collection[str] | None = None) -> None:
    """Raise ``CapabilityError`` if this machine cannot run what the plan asks of ``nodes``, by default of all."""
    here = [worker for worker in plan.training_workers if nodes is None or worker.name in nodes]
    BACKENDS[plan.technique.paradigm.options["inside"]].require(len(here), "paradigm.inside")


async def sums_by_library(world: RealWorld, plan: Plan, group: Collectives) -> LibrarySums:
    """Return the sums among the workers of ``group``, by the library that the Plan names."""
    library = plan.technique.paradigm.options["inside"]
    return LibrarySums(world, await INSIDE_GROUPS[library](world, plan, group), library)


class LibrarySums:
    """``Sums`` by a library. What it has carried is recorded as one transfer per peer and operation.

    In records, key 2 b is the sum of bucket b, and 2 b + 1 what is handed out of it.
    """

    def __init__(self, world: RealWorld, group: InsideGroup, library: str) -> None:
        self._world, self._group, self._library = world, group, library

    async def reduce(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """See ``Sums``; ``tensor`` is overwritten."""
        began_s = self._world.now()
        await self._end(self._group.start_reduce(tensor), "sum", bucket, round_)
        self._record(2 * bucket, round_, began_s)
        return tensor

    async def broadcast(self, tensor: Tensor, bucket: int, round_: int) -> Tensor:
        """See ``Sums``; ``tensor`` is overwritten."""
        began_s = self._world.now()
        await self._end(self._group.start_broadcast(tensor), "broadcast", bucket, round_)
        self._record(2 * bucket + 1, round_, began_s)
        return tensor

    async def _end(self, done: asyncio.Future[None], what: str, bucket: int, round_: int) -> None:
        await self._world.wait(done, f"{self._library}'s {what} of bucket {bucket} in round {round_}")

    def _record(self, key: int, round_: int, began_s: float) -> None:
        for peer, size_bytes in sorted(self._group.received_bytes().items()):
            self._world.record_library_transfer(peer, size_bytes, began_s, message=self._library, key=key, round=round_)
