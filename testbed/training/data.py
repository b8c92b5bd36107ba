"""Data sets as tensors, and the share of each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.training.options import DATASETS, SPLITS, ByClass, Digits, Iid
from testbed.training.seeds import numpy_stream


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images float32 [count, channels, height, width] in [0, 1]; labels int64 [count]."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


def _digits(options: Digits, seed: int) -> Dataset:
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.from_numpy((raw.images / 16.0).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    order = torch.from_numpy(numpy_stream(seed, "hold out").permutation(len(labels)))
    held_out = round(len(labels) * options.test_share)
    test, train = order[:held_out], order[held_out:]
    return Dataset(images[train], labels[train], images[test], labels[test], classes=10)


_LOADERS: dict[str, Callable[[Any, int], Dataset]] = {"digits": _digits}


def load_dataset(kind: str, options: dict[str, Any], seed: int) -> Dataset:
    """The data set of that name. Loaded once per process."""
    return _load_cached(kind, tuple(sorted(options.items())), seed)


@lru_cache(maxsize=4)
def _load_cached(kind: str, options: tuple[tuple[str, Any], ...], seed: int) -> Dataset:
    return _LOADERS[kind](DATASETS[kind](**dict(options)), seed)


def _iid(options: Iid, labels: Tensor, seed: int) -> Tensor:
    return torch.from_numpy(numpy_stream(seed, "split").permutation(len(labels)))


def _by_class(options: ByClass, labels: Tensor, seed: int) -> Tensor:
    return torch.argsort(labels, stable=True)


_ORDERS: dict[str, Callable[[Any, Tensor, int], Tensor]] = {"iid": _iid, "by_class": _by_class}


def share_of(labels: Tensor, kind: str, options: dict[str, Any], seed: int, rank: int, workers: int) -> Tensor:
    """Indices int64 of the samples of worker ``rank`` of ``workers``: contiguous in the split's order."""
    assert 0 <= rank < workers, f"rank {rank} of {workers} workers"
    order = _ORDERS[kind](SPLITS[kind](**options), labels, seed)
    size = len(order) // workers
    return order[rank * size : (rank + 1) * size]


class Batches:
    """An endless stream of batches over one worker's share: a fresh permutation each epoch, by (seed, rank, epoch).

    ``indices(step)`` depends on nothing but its arguments, so a restarted worker sees the same data.
    """

    def __init__(self, share: Tensor, batch_size: int, seed: int, rank: int) -> None:
        assert len(share) > 0, "a worker needs at least one sample"
        self._share, self._batch_size, self._seed, self._rank = share, batch_size, seed, rank
        self._orders: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """Indices int64 [batch_size] of the samples of ``step``; a batch may reach into the next epoch."""
        start, size = step * self._batch_size, len(self._share)
        first, last = start // size, (start + self._batch_size - 1) // size
        stream = torch.cat([self._order(epoch) for epoch in range(first, last + 1)])
        offset = start - first * size
        return stream[offset : offset + self._batch_size]

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old >= epoch - 1}
            permutation = numpy_stream(self._seed, "order", self._rank, epoch).permutation(len(self._share))
            self._orders[epoch] = self._share[torch.from_numpy(permutation)]
        return self._orders[epoch]
