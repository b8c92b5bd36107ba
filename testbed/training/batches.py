"""Chooses the samples of each training step of a worker."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.training.seeds import numpy_stream


class Batches:
    """An endless stream of batches over one worker's share: a fresh permutation each epoch, by (seed, rank, epoch).

    ``indices(step)`` depends on its arguments only, so that a restarted worker sees the same data.
    """

    def __init__(self, share: Tensor, batch_size: int, seed: int, rank: int) -> None:
        assert len(share) > 0, "a worker needs at least one sample"
        self.share = share
        self.batch_size = batch_size
        self._seed = seed
        self._rank = rank
        self._orders: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """Return the samples' indices, int64 [batch_size], of ``step``; a batch may continue in the next epochs."""
        start = step * self.batch_size
        size = len(self.share)
        first = start // size
        last = (start + self.batch_size - 1) // size
        stream = torch.cat([self._order(epoch) for epoch in range(first, last + 1)])
        offset = start - first * size
        return stream[offset : offset + self.batch_size]

    def epoch(self, step: int) -> int:
        return step * self.batch_size // len(self.share)

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old >= epoch - 1}
            permutation = numpy_stream(self._seed, "order", self._rank, epoch).permutation(len(self.share))
            self._orders[epoch] = self.share[torch.from_numpy(permutation)]
        return self._orders[epoch]
