"""Which elements of a tensor to send now. What is not sent is kept and added to the next tensor (error feedback).

``CoordinatedChoice``: the workers of a data centre agree on one threshold for all shards of its sum. With the
same number of elements from each shard, large ones of one shard are kept back while smaller ones of another are sent.
Here three small histograms are summed over the workers (8, 8 and 2 KiB; see ``policy.collective.threshold``), and all
send what reaches the same threshold: exactly the k largest of the whole, ties by the lowest index.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from testbed.codec.memory import ResidualMemory, memories
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.engine.collectives.collectives import Collectives
from testbed.policy.collective.butterfly import recursive_doubling
from testbed.policy.collective.threshold import TURNS, Turn, bin_of_kth, share_of_ties, top_count
from testbed.world import Work, World

Choice = tuple[Tensor, Tensor]  # ascending indices (int64), and their values


class Chooser(Protocol):
    """Chooses what to send now of a tensor, and keeps the rest for later (error feedback)."""

    async def __call__(self, tensor: Tensor, round_: int) -> Choice: ...


class OwnChoice:
    """The largest elements of what this worker holds: a share ``density`` of it."""

    def __init__(self, world: World, density: float, seed: int) -> None:
        self._world, self._density = world, density
        self._make = memories(SampleAndSweep(seed))
        self._memory: ResidualMemory | None = None

    async def __call__(self, tensor: Tensor, round_: int) -> Choice:
        count = top_count(tensor.numel(), self._density)
        # the gradient and the residual are read, and the residual is written
        work = Work("select", round_, size_bytes=3 * tensor.nbytes)
        return await self._world.compute(work, lambda: self._take(tensor, count))

    def _take(self, tensor: Tensor, count: int) -> Choice:
        if tensor.is_meta:
            return torch.empty(count, dtype=torch.int64, device="meta"), tensor[:count]
        if self._memory is None:
            self._memory = self._make(tensor.numel(), tensor.device)
        return self._memory.take(tensor, count)


class CoordinatedChoice:
    """A share ``density`` of the elements of all shards together; keeps the rest of this shard."""

    def __init__(self, world: World, inside: Collectives, density: float) -> None:
        self._world, self._inside, self._density = world, inside, density
        self._residual: Tensor | None = None

    async def __call__(self, tensor: Tensor, round_: int) -> Choice:
        """Return what reaches the threshold: ascending indices, and their values."""
        if self._residual is None:
            self._residual = torch.zeros_like(tensor)
        self._residual += tensor
        magnitudes = self._residual.abs().view(torch.int32)
        sizes = await self._inside.all_reduce(torch.tensor([tensor.numel()]), recursive_doubling)
        threshold, wanted = await self._threshold(magnitudes, top_count(int(sizes), self._density), round_)
        chosen = await self._take(magnitudes, threshold, wanted)
        values = self._residual[chosen]
        self._residual[chosen] = 0
        return chosen, values

    async def _threshold(self, magnitudes: Tensor, count: int, round_: int) -> tuple[int, int]:
        """Return the bits of the ``count``-th largest magnitude, and how many of those equal to it are still wanted.

        Magnitudes of float32 order like their bits read as integers, so the threshold is found digit by digit.
        """
        prefix, wanted = 0, count
        for turn in TURNS:
            work = Work("select", round_, size_bytes=magnitudes.nbytes)
            counts = await self._world.compute(work, partial(_counts, magnitudes, turn, prefix))
            total = await self._inside.all_reduce(counts, recursive_doubling)
            number, above = bin_of_kth(total.tolist(), wanted)
            prefix, wanted = prefix << turn.bits | number, wanted - above
        return prefix, wanted

    async def _take(self, magnitudes: Tensor, threshold: int, wanted: int) -> Tensor:
        ties = torch.nonzero(magnitudes == threshold).flatten()
        all_ties = await self._inside.all_gather(torch.tensor([ties.numel()]))
        mine = share_of_ties([int(count) for count in all_ties], wanted, self._inside.rank)
        larger = torch.nonzero(magnitudes > threshold).flatten()
        return torch.cat([larger, ties[:mine]]).sort().values


def _counts(magnitudes: Tensor, turn: Turn, prefix: int) -> Tensor:
    """Return how many magnitudes that begin with ``prefix`` fall into each bin of this turn."""
    candidates = magnitudes[magnitudes >> (turn.shift + turn.bits) == prefix]
    bins = (candidates >> turn.shift) & ((1 << turn.bits) - 1)
    return torch.bincount(bins, minlength=1 << turn.bits).to(torch.int32)
