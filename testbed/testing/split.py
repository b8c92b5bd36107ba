"""Checks of a split (``docs/axes/split.md``): a partition of samples, or of a part of them, by the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.testing.subject import Subject
from testbed.testing.verdict import require
from testbed.training.splits import shares_of

_CASES = 80


def labels_of(count: int, classes: int, seed: int) -> Tensor:
    """Return int64 labels [count], drawn from ``seed``."""
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))


def _cases() -> Iterator[tuple[Tensor, int, int]]:
    """Yield labels, seed and number of workers."""
    draw = random.Random(0)
    for number in range(_CASES):
        workers = draw.randint(1, 12)
        yield labels_of(workers * draw.randint(8, 30), draw.randint(1, 12), number), draw.randrange(1 << 62), workers


def shares_are_disjoint_and_not_empty(subject: Subject) -> None:
    for labels, seed, workers in _cases():
        try:
            shares = shares_of(labels, subject.kind, dict(subject.values), seed, workers)
        except ScenarioError:
            continue  # a split may refuse what it cannot deal out
        at = f"{len(labels)} samples, {workers} workers"
        require(len(shares) == workers, f"{workers} shares", f"{len(shares)} for {at}", "return one tensor per worker")
        require(
            all(share.dtype == torch.int64 and share.dim() == 1 for share in shares), "indices int64 [samples]",
            str([(share.dtype, tuple(share.shape)) for share in shares][:3]), "return flat tensors of indices",
        )  # fmt: skip
        used = torch.cat(shares)
        require(
            len(set(used.tolist())) == len(used), "no sample in two shares",
            f"{len(used) - len(set(used.tolist()))} twice, {at}", "deal every index out once",
        )  # fmt: skip
        require(
            int(used.min()) >= 0 and int(used.max()) < len(labels), f"indices from 0 to {len(labels) - 1}",
            f"{int(used.min())} to {int(used.max())}", "index the labels that are given",
        )  # fmt: skip


def the_seed_alone_decides(subject: Subject) -> None:
    for labels, seed, workers in list(_cases())[:10]:
        found: list[tuple[Tensor, ...]] = []
        for copy in (labels, labels.clone()):
            torch.manual_seed(len(found))  # of torch's own stream, which must not come in
            try:
                found.append(shares_of(copy, subject.kind, dict(subject.values), seed, workers))
            except ScenarioError:
                found.append(())
        require(
            all(torch.equal(a, b) for a, b in zip(*found, strict=True)), "equal shares from equal labels and seed",
            f"they differ for {len(labels)} samples, {workers} workers", "draw from the seed alone",
        )  # fmt: skip


def the_labels_stay_as_they_were(subject: Subject) -> None:
    labels = labels_of(120, 5, 1)
    copy = labels.clone()
    shares_of(labels, subject.kind, dict(subject.values), 1, 4)
    require(torch.equal(labels, copy), "labels as they were", "they have changed", "work on a copy")
