"""The closed forms against the schedules walked through in time, and the known numbers."""

from __future__ import annotations

import pytest

from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.options import AllReduceOptions
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.shard.slices import buckets_of
from tests.for_each import for_each
from tests.policy.collective.cost import (
    ON_EQUAL_LINKS,
    LinkCost,
    butterfly_s,
    crossover_bytes,
    double_binary_tree_s,
    gather_scatter_s,
    mesh2d_s,
    recursive_doubling_s,
    ring_s,
    torus2d_s,
    tree_s,
)
from tests.policy.collective.sparse_cost import (
    Sites,
    break_even_density,
    dense_wan_bytes,
    flat_ring_wan_bytes,
    flat_sparse_s,
    flat_sparse_wan_bytes,
    hitopk_s,
    hitopk_wan_bytes,
)

WAN = LinkCost(0.05, 8 / 100e6, 1 / 2e9)
LAN = LinkCost(0.0001, 8 / 1e9, 1 / 2e9)


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


def test_pipelining_a_tree_makes_it_faster() -> None:
    whole, cut = (walked_s("tree", GroupShape(15, segments=s), 1e7) for s in (1, 16))
    assert cut < 0.6 * whole


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


def test_on_a_chain_a_mesh_is_faster_than_a_torus() -> None:
    """Between ranks that are not neighbours, a message takes the delays and shares the rates of the links between."""

    def chain(source: int, target: int) -> LinkCost:
        return LinkCost(WAN.alpha_s * abs(source - target), WAN.beta_s, WAN.gamma_s)

    times = {}
    for name in ("mesh2d", "torus2d"):
        schedules = [ALL_REDUCE[name](GroupShape(5), rank) for rank in range(5)]
        times[name] = max(finish_times_s(schedules, 1e5, chain))
    assert times["torus2d"] > 1.4 * times["mesh2d"]


def test_crossovers_of_recursive_doubling_and_ring() -> None:
    """Known: 1.0 MB at 20 Mbit/s, 5.0 / 5.5 MB at 100 Mbit/s, for 4 and 8 ranks at 50 ms."""
    for ranks, rate_bps, expected in ((4, 20e6, 1.0e6), (4, 100e6, 5.0e6), (8, 100e6, 5.5e6)):
        link = LinkCost(0.05, 8 / rate_bps)
        found = crossover_bytes(recursive_doubling_s, ring_s, ranks, link)
        assert found == pytest.approx(expected, rel=0.05)
        below, above = found / 1.5, found * 1.5
        assert recursive_doubling_s(ranks, below, link) < ring_s(ranks, below, link)
        assert recursive_doubling_s(ranks, above, link) > ring_s(ranks, above, link)
    link = LinkCost(0.05, 8 / 100e6)
    assert ring_s(8, 715e3, link) / butterfly_s(8, 715e3, link) == pytest.approx(2.0, abs=0.1)


def test_a_slow_link_sets_the_pace_of_the_ring() -> None:
    slow = LinkCost(0.05, 10 * WAN.beta_s)
    schedules = [ALL_REDUCE["ring"](GroupShape(5), rank) for rank in range(5)]
    times = finish_times_s(schedules, 1e8, lambda a, b: slow if (a, b) == (2, 3) else WAN)
    assert max(times) == pytest.approx(ring_s(5, 1e8, slow), rel=0.1)


def test_one_port_makes_a_trees_root_send_twice() -> None:
    schedules = [ALL_REDUCE["tree"](GroupShape(3), rank) for rank in range(3)]
    own, shared = (max(finish_times_s(schedules, 1e7, lambda a, b: LinkCost(0, 8e-8), p)) for p in (0.0, 8e-8))
    assert shared == pytest.approx(1.5 * own)


def test_sparse_bytes_and_times_of_resnet50_on_three_sites() -> None:
    """3 sites × 4 workers, 155 Mbit/s, 15 ms, 25.56 M elements, 1 %: 364 ms against 3.5, 7.2 and 10 s."""
    elements = 25_560_000
    assert hitopk_wan_bytes(3, 4, elements, 0.01) == 4_089_600
    assert flat_sparse_wan_bytes(3, 4, elements, 0.01) == 16 * 2 * 255_600 * 8
    assert dense_wan_bytes(3, elements) == pytest.approx(136.3e6, rel=0.001)
    where = Sites(3, 4, LinkCost(50e-6, 8 / 10e9), LinkCost(0.015, 8 / 155e6))
    assert hitopk_s(where, elements, 0.01) == pytest.approx(0.364, rel=0.02)
    assert flat_sparse_s(where, elements, 0.01) == pytest.approx(3.4, rel=0.02)
    assert hitopk_wan_bytes(3, 4, elements, 0.01) < dense_wan_bytes(3, elements) < flat_ring_wan_bytes(12, elements)
    assert break_even_density(3) == pytest.approx(1 / 3)


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
