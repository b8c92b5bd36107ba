"""Splits: every sample at most once, every worker at least one, and each split's own promise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.training.batches import Batches
from testbed.training.options import SPLITS
from testbed.training.splits import share_of, shares_of
from tests.for_each import for_each

CASES: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in SPLITS),
    ("dirichlet", {"alpha": 0.05}),
    ("dirichlet", {"alpha": 100.0}),
    ("by_count", {"skew": 1.5}),
]


def labels_of(count: int, classes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))


@given(
    case=st.sampled_from(CASES),
    count=st.integers(1, 400),
    classes=st.integers(1, 12),
    workers=st.integers(1, 20),
    seed=st.integers(0, 2**62),
)
def test_shares_have_their_sizes_and_are_those_of_each_rank(
    case: tuple[str, dict[str, Any]], count: int, classes: int, workers: int, seed: int
) -> None:
    labels = labels_of(count, classes, 1)
    try:
        shares = shares_of(labels, *case, seed, workers)
    except ScenarioError as error:
        assert count < workers or case[0] in ("dirichlet", "by_count"), error
        return
    if case[0] in ("dirichlet", "by_count"):
        assert sum(map(len, shares)) == count
    else:
        assert {len(share) for share in shares} == {count // workers}
    for rank, share in enumerate(shares):
        assert torch.equal(share, share_of(labels.clone(), *case, seed, rank, workers))


def test_contiguous_is_the_rule_of_geomx() -> None:
    labels = labels_of(100, 10, 1)
    assert torch.equal(share_of(labels, "contiguous", {}, 1, 2, 3), torch.arange(66, 99))


def test_by_class_sorts_and_keeps_the_order_within_a_class() -> None:
    labels = torch.tensor([1, 0, 2, 1, 0, 2])
    shares = shares_of(labels, "by_class", {}, 1, 3)
    assert [share.tolist() for share in shares] == [[1, 4], [0, 3], [2, 5]]


def class_concentration(alpha: float) -> float:
    """Mean over workers of the largest class's part: 0.1 when alike, 1 when a worker has one class."""
    labels = torch.arange(10_000) % 10
    shares = shares_of(labels, "dirichlet", {"alpha": alpha}, 1, 8)
    return sum(float(torch.bincount(labels[share]).max() / len(share)) for share in shares) / len(shares)


def test_a_small_alpha_concentrates_classes() -> None:
    assert class_concentration(0.1) > 0.4 > class_concentration(1.0) > 0.2 > class_concentration(1000.0)


def test_by_count_follows_the_numbers_to_the_sample() -> None:
    labels = labels_of(80, 10, 1)
    sizes = [len(share) for share in shares_of(labels, "by_count", {"shares": "40, 20 10,10"}, 1, 4)]
    assert sizes == [40, 20, 10, 10]
    halves = [len(share) for share in shares_of(labels, "by_count", {"shares": "1 1 1"}, 1, 3)]
    assert halves == [27, 27, 26]
    skewed = [len(share) for share in shares_of(labels, "by_count", {"skew": 1.0}, 1, 3)]
    assert skewed == [44, 22, 14]  # 80 · (6, 3, 2) / 11


@for_each(
    ("shares", "message"),
    [
        ("1 2", "has 2 numbers, but 3 workers train"),
        ("1 2 x", "not a list of numbers"),
        ("1 0 2", "'by_count' leaves worker 1 of 3 without a sample; use more samples"),
        ("1 -1 2", "a negative number"),
        ("1 nan 2", "not a list of numbers"),
    ],
)
def test_bad_shares(shares: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        shares_of(labels_of(90, 10, 1), "by_count", {"shares": shares}, 1, 3)


def test_dirichlet_gives_up_with_a_cure() -> None:
    with pytest.raises(ScenarioError, match="use a larger alpha"):
        shares_of(torch.zeros(20, dtype=torch.int64), "dirichlet", {"alpha": 0.01}, 1, 20)


@pytest.mark.parametrize(("least", "workers"), [(1, 20), (3, 7), (10, 2)])
def test_dirichlet_gives_each_worker_the_least_number(least: int, workers: int) -> None:
    labels = torch.zeros(21, dtype=torch.int64)
    shares = shares_of(labels, "dirichlet", {"alpha": 0.01, "least": least}, 1, workers)
    assert torch.cat(shares).sort().values.equal(torch.arange(21)) and min(map(len, shares)) >= least
    with pytest.raises(ScenarioError, match=r"training\.split\.least: .* there are 21; write 10 or less"):
        shares_of(labels, "dirichlet", {"least": 11}, 1, 2)


@given(size=st.integers(1, 50), batch=st.integers(1, 70), seed=st.integers(0, 99))
def test_every_epoch_sees_every_sample_once(size: int, batch: int, seed: int) -> None:
    share = torch.arange(100, 100 + size)
    batches = Batches(share, batch, seed, rank=0)
    steps = -(-3 * size // batch)
    stream = torch.cat([batches.indices(step) for step in range(steps)])
    for epoch in range(3):
        assert stream[epoch * size : (epoch + 1) * size].sort().values.equal(share)
    fresh = Batches(share, batch, seed, rank=0)
    assert fresh.indices(steps - 1).equal(batches.indices(steps - 1))
    assert batches.epoch(steps - 1) == (steps - 1) * batch // size
