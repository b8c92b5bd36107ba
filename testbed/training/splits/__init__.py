"""Splits the training data into shares, one per worker. No two shares overlap, and none is empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.training.options import SPLITS
from testbed.training.options.datasets import ByClass, ByCount, Contiguous, Dirichlet, Iid
from testbed.training.seeds import numpy_stream
from testbed.units import parse_number

DIRICHLET_ATTEMPTS = 100
_NAMED = 4


def share_of(labels: Tensor, kind: str, options: dict[str, Any], seed: int, rank: int, workers: int) -> Tensor:
    """Return the int64 indices of the samples of worker ``rank`` of ``workers``.

    Raise ``ScenarioError`` if there is no such worker, or if the split leaves a worker without a sample.
    """
    if not 0 <= rank < workers:
        raise ScenarioError(f"data slice {rank} does not exist: {workers} workers have slices 0 to {workers - 1}")
    return shares_of(labels, kind, options, seed, workers)[rank]


def shares_of(labels: Tensor, kind: str, options: dict[str, Any], seed: int, workers: int) -> tuple[Tensor, ...]:
    """Return the shares of all workers, by rank; cached, since a process may have many workers."""
    return _cut(labels, kind, tuple(sorted(options.items())), seed, workers, SPLITS[kind].__module__)


@lru_cache(maxsize=4)
def _cut(
    labels: Tensor, kind: str, options: tuple[tuple[str, Any], ...], seed: int, workers: int, _module: str
) -> tuple[Tensor, ...]:
    """``_module``: the module of the split. It changes if the file is edited, so the cache makes new shares."""
    if len(labels) < workers:
        raise ScenarioError(f"training.split: {len(labels)} samples are too few for {workers} workers")
    cut = RULES.get(kind) or SPLITS[kind].cut  # a user's own split
    shares = tuple(cut(SPLITS.options(kind, dict(options)), labels, seed, workers))
    empty = [rank for rank, share in enumerate(shares) if not len(share)]
    if empty:
        cure = "use more samples or fewer workers, or another split"
        raise EmptyShares(empty, f"training.split: '{kind}' leaves", f"of {workers} without a sample; {cure}")
    return shares


class EmptyShares(ScenarioError):
    """A split leaves the workers ``ranks`` without a sample."""

    def __init__(self, ranks: Sequence[int], before: str, after: str) -> None:
        self.ranks = tuple(ranks)
        self._before = before
        self._after = after
        super().__init__(self.naming([f"worker {rank}" for rank in ranks]))

    def naming(self, workers: Sequence[str]) -> str:
        """Return the message with the names of the workers: the first four, and the number of the others."""
        shown = ", ".join(workers[:_NAMED])
        more = f" and {len(workers) - _NAMED} more" if len(workers) > _NAMED else ""
        return f"{self._before} {shown}{more} {self._after}"


def _iid(options: Iid, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
    return _equal_cuts(_shuffled(labels, seed), workers)


def _contiguous(options: Contiguous, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
    return _equal_cuts(torch.arange(len(labels)), workers)


def _by_class(options: ByClass, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
    return _equal_cuts(torch.argsort(_one_class_each(labels, "by_class"), stable=True), workers)


def _dirichlet(options: Dirichlet, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
    """Draw shares, as published benchmarks do, until every worker has a sample, or ``DIRICHLET_ATTEMPTS`` times."""
    classes = _one_class_each(labels, "dirichlet").numpy()
    if options.least * workers > len(classes):
        raise ScenarioError(
            f"training.split.least: {workers} workers with {options.least} samples each need "
            f"{options.least * workers}, but there are {len(classes)}; write {len(classes) // workers} or less"
        )
    for attempt in range(DIRICHLET_ATTEMPTS):
        owner = _dirichlet_owners(options.alpha, classes, numpy_stream(seed, "dirichlet", attempt), workers)
        if options.least:
            _fill(owner, options.least, workers)
        if len(np.unique(owner)) == workers:
            return [torch.from_numpy(np.flatnonzero(owner == rank)) for rank in range(workers)]
    cure = "use a larger alpha, more samples or fewer workers, or write 'least: 1'"
    raise EmptyShares(
        sorted({*range(workers)} - {*owner.tolist()}),
        f"training.split: dirichlet with alpha {options.alpha:g} leaves",
        f"of {workers} without a sample, and others in each of {DIRICHLET_ATTEMPTS} draws; {cure}",
    )


def _fill(owner: NDArray[np.int64], least: int, workers: int) -> None:
    """Fill workers up to ``least`` samples with the first samples of the workers that have the most."""
    counts = np.bincount(owner, minlength=workers)
    for rank in range(workers):
        while counts[rank] < least:
            richest = int(counts.argmax())
            given = np.flatnonzero(owner == richest)[: min(least - counts[rank], max(1, counts[richest] - least))]
            owner[given] = rank
            counts[rank] += len(given)
            counts[richest] -= len(given)


def _dirichlet_owners(
    alpha: float, classes: NDArray[np.int64], stream: np.random.Generator, workers: int
) -> NDArray[np.int64]:
    owner = np.empty(len(classes), dtype=np.int64)
    for label in np.unique(classes):
        members = stream.permutation(np.flatnonzero(classes == label))
        ends = np.cumsum(stream.dirichlet(np.full(workers, alpha)))
        cuts = np.floor(ends[:-1] * len(members) + 0.5).astype(np.int64)
        for rank, part in enumerate(np.split(members, cuts)):
            owner[part] = rank
    return owner


def _by_count(options: ByCount, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
    weights = np.array(
        parse_shares(options.shares, workers) or [(rank + 1) ** -options.skew for rank in range(workers)]
    )
    sizes = _largest_remainder(weights / weights.sum(), len(labels))
    return list(torch.split(_shuffled(labels, seed), sizes))


def parse_shares(text: str, workers: int) -> list[float]:
    """Parse a text such as ``"4, 2 1"``; an empty text gives an empty list.

    Raise ``ScenarioError`` unless there is one number per worker, none negative, and at least one positive.
    """
    try:
        shares = [float(parse_number(word)) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise ScenarioError(f"training.split.shares: '{text}' is not a list of numbers such as '4 2 1 1'") from error
    if shares and len(shares) != workers:
        raise ScenarioError(f"training.split.shares: has {len(shares)} numbers, but {workers} workers train")
    if shares and not (all(0 <= share < 1e12 for share in shares) and any(shares)):
        raise ScenarioError(f"training.split.shares: '{text}' contains a negative number, or no positive one")
    return shares


def _largest_remainder(weights: NDArray[np.float64], total: int) -> list[int]:
    """Return integers in the proportions of ``weights`` that sum to ``total`` (Hamilton's method)."""
    exact = weights * total
    sizes = np.floor(exact).astype(np.int64)
    left = total - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:left]] += 1
    return [int(size) for size in sizes]


def _shuffled(labels: Tensor, seed: int) -> Tensor:
    return torch.from_numpy(numpy_stream(seed, "split").permutation(len(labels)))


def _equal_cuts(order: Tensor, workers: int) -> list[Tensor]:
    """Return consecutive shares of ⌊n / workers⌋ samples. The remainder is unused, so that epochs are equally long."""
    size = len(order) // workers
    return [order[rank * size : (rank + 1) * size] for rank in range(workers)]


def _one_class_each(labels: Tensor, kind: str) -> Tensor:
    if labels.dim() != 1:
        raise ScenarioError(
            f"training.split: '{kind}' needs one class per sample, but text has none; use iid or contiguous"
        )
    return labels


RULES: dict[str, Callable[[Any, Tensor, int, int], list[Tensor]]] = {
    "iid": _iid,
    "contiguous": _contiguous,
    "by_class": _by_class,
    "dirichlet": _dirichlet,
    "by_count": _by_count,
}
