"""The closed forms against the schedules walked through in time; shares of the optimizer's work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.options import AllReduceOptions
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.collective.shares import shares_of
from testbed.policy.shard.slices import buckets_of
from tests.for_each import for_each
from tests.policy.collective.cost import (
    ON_EQUAL_LINKS,
    LinkCost,
    double_binary_tree_s,
    gather_scatter_s,
    mesh2d_s,
    torus2d_s,
    tree_s,
)

WAN = LinkCost(0.05, 8 / 100e6, 1 / 2e9)


def walked_s(name: str, shape: GroupShape, size_bytes: float, link: LinkCost = WAN) -> float:
    schedules = [ALL_REDUCE[name](shape, rank) for rank in range(shape.size)]
    return max(finish_times_s(schedules, size_bytes, lambda a, b: link))


@for_each("name", ["ring", "butterfly", "recursive_doubling", "binomial_tree", "direct"])
@for_each("ranks", [1, 2, 3, 4, 5, 6, 8, 13, 16])
@for_each("size_bytes", [4, 1e5, 1e8])
def test_closed_forms_are_what_the_schedules_do(name: str, ranks: int, size_bytes: float) -> None:
    form, walked = ON_EQUAL_LINKS[name](ranks, size_bytes, WAN), walked_s(name, GroupShape(ranks), size_bytes)
    if name in ("recursive_doubling", "binomial_tree") and ranks & (ranks - 1):
        assert 0.49 * form < walked <= form  # ranks that need not wait for those outside of the power of two
    else:
        assert walked == pytest.approx(form)


@for_each("ranks", [2, 3, 7, 15])
@for_each("segments", [1, 4, 16])
def test_a_pipelined_tree(ranks: int, segments: int) -> None:
    walked = walked_s("tree", GroupShape(ranks, segments=segments), 1e7)
    assert walked == pytest.approx(tree_s(ranks, 1e7, WAN, segments), rel=0.02)


@for_each("ranks", [7, 8, 15, 16])
def test_with_one_port_the_double_tree_beats_the_tree(ranks: int) -> None:
    times = []
    for name in ("tree", "double_binary_tree"):
        schedules = [ALL_REDUCE[name](GroupShape(ranks, segments=32), rank) for rank in range(ranks)]
        times.append(max(finish_times_s(schedules, 1e8, lambda a, b: WAN, WAN.beta_s)))
    assert times[1] == pytest.approx(double_binary_tree_s(ranks, 1e8, WAN), rel=0.25)
    assert times[1] < 0.85 * times[0]


def test_torus() -> None:
    groups = tuple(tuple(range(4 * g, 4 * g + 4)) for g in range(3))
    assert walked_s("torus2d", GroupShape(12, groups), 1e7) == pytest.approx(torus2d_s(4, 3, 1e7, WAN, WAN))
    assert walked_s("mesh2d", GroupShape(12, groups), 1e7) == pytest.approx(mesh2d_s(4, 3, 1e7, WAN, WAN))


@for_each("ranks", [1, 2, 4, 8, 16])
def test_rooted_gather_and_scatter(ranks: int) -> None:
    walked = walked_s("gather_scatter", GroupShape(ranks), 1e7)
    assert walked == pytest.approx(gather_scatter_s(ranks, 1e7, WAN))


@for_each(("ranks", "columns", "rows"), [(2, 2, 1), (7, 7, 1), (13, 13, 1), (6, 3, 2), (16, 4, 4)])
def test_a_mesh_of_any_number_of_ranks(ranks: int, columns: int, rows: int) -> None:
    walked = walked_s("mesh2d", GroupShape(ranks), 1e7)
    assert walked == pytest.approx(mesh2d_s(columns, rows, 1e7, WAN, WAN))


def test_buckets_go_from_the_last_key_to_the_first() -> None:
    assert buckets_of([10, 20, 30, 1000, 5], 200) == ((4,), (3,), (2, 1), (0,))
    assert buckets_of([10, 20], 10**6) == ((1, 0),)
    assert buckets_of([], 10) == ()
    assert sorted(key for bucket in buckets_of(list(range(50)), 333) for key in bucket) == list(range(50))


def test_options_that_have_no_effect_are_named() -> None:
    assert [*AllReduceOptions().problems()] == []
    assert [*AllReduceOptions(density=0.1).problems()] == [
        ("density", "has no effect with 'algorithm: ring'", "remove it")
    ]
    sparse = AllReduceOptions(algorithm="flat_topk", density=0.1, inside="gloo")
    assert [option for option, *_ in sparse.problems()] == ["inside"]
    assert [option for option, *_ in AllReduceOptions(algorithm="hitopk", segments=4).problems()] == ["segments"]
    assert [option for option, *_ in AllReduceOptions(shared_by="all").problems()] == ["shared_by"]


EMBEDDING = [23_000_000, *[768] * 100, *[2_359_296] * 30]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(1, 17))
def test_every_element_is_in_one_share_and_none_is_much_larger(sizes: list[int], ranks: int) -> None:
    shares = shares_of(sizes, ranks)
    assert len(shares) == ranks
    seen = sorted((p.key, p.start, p.stop) for share in shares for p in share)
    for key, size in enumerate(sizes):
        ends = [(start, stop) for k, start, stop in seen if k == key]
        assert [0, *(stop for _, stop in ends)] == [*(start for start, _ in ends), size]
    largest = max(sum(piece.size for piece in share) for share in shares)
    assert largest <= 2 * -(-sum(sizes) // ranks)


def test_by_bytes_and_not_by_tensors() -> None:
    """Most of a transformer is its embedding: one worker with it alone would have a quarter of everything to do."""
    shares = shares_of(EMBEDDING, 8)
    loads = [sum(piece.size for piece in share) for share in shares]
    assert max(loads) < 1.1 * sum(EMBEDDING) / 8
    assert max(EMBEDDING) > 1.9 * sum(EMBEDDING) / 8
