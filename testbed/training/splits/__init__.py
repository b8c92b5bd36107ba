"""The share of the training data of each worker: every sample in at most one share, every share with a sample."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor

from testbed.errors import ScenarioError
from testbed.training.options import SPLITS
from testbed.training.splits.rules import RULES


def share_of(labels: Tensor, kind: str, options: dict[str, Any], seed: int, rank: int, workers: int) -> Tensor:
    """Return the int64 indices of the samples of worker ``rank`` of ``workers``.

    Raise ``ScenarioError`` if there is no such worker, or if the split leaves a worker without a sample.
    """
    if not 0 <= rank < workers:
        raise ScenarioError(f"data slice {rank} does not exist: {workers} workers have slices 0 to {workers - 1}")
    return shares_of(labels, kind, options, seed, workers)[rank]


def shares_of(labels: Tensor, kind: str, options: dict[str, Any], seed: int, workers: int) -> tuple[Tensor, ...]:
    """Return the shares of all workers, by rank; cached, since a process may have many workers."""
    return _cut(labels, kind, tuple(sorted(options.items())), seed, workers)


@lru_cache(maxsize=4)
def _cut(
    labels: Tensor, kind: str, options: tuple[tuple[str, Any], ...], seed: int, workers: int
) -> tuple[Tensor, ...]:
    if len(labels) < workers:
        raise ScenarioError(f"training.split: {len(labels)} samples are too few for {workers} workers")
    cut = RULES.get(kind) or SPLITS[kind].cut  # a split from outside
    shares = tuple(cut(SPLITS.options(kind, dict(options)), labels, seed, workers))
    empty = [str(rank) for rank, share in enumerate(shares) if not len(share)]
    if empty:
        raise ScenarioError(f"training.split: '{kind}' leaves worker {', '.join(empty)} of {workers} without a sample")
    return shares


__all__ = ["share_of", "shares_of"]
