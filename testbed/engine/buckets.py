"""Buckets: small tensors that are sent together. Servers treat a bucket as one key.

Buckets are the counterpart of slices (``slicing``). Each message costs every node on its way a fixed time, besides the
time for its bytes. Without buckets, a model of hundreds of small tensors would spend its rounds on these fixed costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine import sync_setup
from testbed.engine.local_work import copying
from testbed.engine.slicing import keys_together, overlaps
from testbed.plan.model import Plan
from testbed.world import World


class Buckets:
    """The keys of a model in buckets, in their order. Without ``buckets``, each key is a bucket of its own.

    sizes  the elements of each bucket
    """

    def __init__(self, sizes: Sequence[int], buckets: Sequence[Sequence[int]] | None = None) -> None:
        self._sizes = tuple(sizes)
        self.keys = tuple(map(tuple, buckets)) if buckets else tuple((key,) for key in range(len(sizes)))
        self.sizes = tuple(sum(self._sizes[key] for key in bucket) for bucket in self.keys)

    async def joined(self, world: World, tensors: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensor of each bucket whose keys are in ``tensors``. No bucket may have only some keys there."""
        found: dict[int, Tensor] = {}
        for number, bucket in enumerate(self.keys):
            if bucket[0] in tensors:
                parts = [tensors[key] for key in bucket]
                found[number] = parts[0] if len(parts) == 1 else await self._joined(world, parts)
        return found

    @staticmethod
    async def _joined(world: World, parts: list[Tensor]) -> Tensor:
        return await world.compute(copying(parts), lambda: buffers.joined(parts))

    def split(self, tensors: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the tensors of keys, given those of buckets. They share the buckets' memory."""
        found: dict[int, Tensor] = {}
        for number, tensor in tensors.items():
            bucket = self.keys[number]
            parts = (tensor,) if len(bucket) == 1 else torch.split(tensor, [self._sizes[key] for key in bucket])
            found.update(zip(bucket, parts, strict=True))
        return found


def buckets_of(plan: Plan, sizes: Sequence[int], widths: Mapping[int, int]) -> Buckets:
    """Return the buckets of a model.

    Each key is a bucket of its own if layers are sent one by one, if fragments take turns, if tables travel by rows
    (``widths``), or if ``slicing.keys_together`` does not group keys.
    """
    if overlaps(plan) or sync_setup.streaming(plan) is not None or widths:
        return Buckets(sizes)
    return Buckets(sizes, keys_together(plan, sizes))


def script_buckets_of(plan: Plan, sizes: Sequence[int], together: int, codec: str | None) -> Buckets:
    """Return the buckets of a script's keys. Only the first ``together`` keys, pushed in every round, may be joined.

    Keys pushed only in some rounds must stay apart: a server's optimizer does not change a parameter without gradient.

    ``codec``: the kind of codec that the script has chosen
    """
    some = keys_together(plan, sizes[:together], codec) if sync_setup.all_wait(plan) else None
    return Buckets(sizes, [*some, *([key] for key in range(together, len(sizes)))] if some else None)
