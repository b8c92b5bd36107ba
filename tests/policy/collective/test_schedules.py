"""Every all-reduce algorithm and primitive, carried out on symbols, for 1 to 17 ranks."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.all_to_all import all_to_all
from testbed.policy.collective.ring import all_gather, all_gather_direct, reduce_scatter
from testbed.policy.collective.rooted import gather, scatter
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.collective.tree import broadcast
from tests.for_each import for_each
from tests.policy.collective.verify import carry_out, check_all_reduce

RANKS = (*range(1, 10), 12, 13, 16, 17)


@st.composite
def shapes(draw: st.DrawFn) -> GroupShape:
    """Any number of ranks in groups of any sizes, members in any order. More ranks: ``test_every_number_of_ranks``."""
    ranks = draw(st.permutations(range(draw(st.integers(1, 8)))))
    groups, left = [], list(ranks)
    while left:
        size = draw(st.integers(1, len(left)))
        groups.append(tuple(left[:size]))
        left = left[size:]
    return GroupShape(len(ranks), tuple(groups), draw(st.integers(1, 4)))


@pytest.mark.parametrize("name", ALL_REDUCE)
@given(shape=shapes(), seed=st.integers(0, 2**32))
def test_every_rank_gets_every_contribution_once_in_any_interleaving(name: str, shape: GroupShape, seed: int) -> None:
    schedules = [ALL_REDUCE[name](shape, rank) for rank in range(shape.size)]
    timing = random.Random(seed)
    sums = check_all_reduce(schedules, timing.randrange)
    assert sums == check_all_reduce(schedules), "the order of a sum depends on the timing"


@for_each("name", ALL_REDUCE)
def test_every_number_of_ranks(name: str) -> None:
    for size in RANKS:
        check_all_reduce([ALL_REDUCE[name](GroupShape(size), rank) for rank in range(size)])


@given(schedule=st.sampled_from(sorted(ALL_REDUCE)), shape=shapes(), elements=st.integers(0, 200))
def test_chunks_cover_a_buffer_of_any_size(schedule: str, shape: GroupShape, elements: int) -> None:
    bounds = ALL_REDUCE[schedule](shape, 0).bounds(elements)
    assert bounds[0] == 0
    assert bounds[-1] == elements
    assert list(bounds) == sorted(bounds)


@for_each(
    ("name", "expected"),
    [
        ("ring", "(((1+2)+3)+0)"),  # chunk 0
        ("butterfly", "((0+2)+(1+3))"),
        ("recursive_doubling", "((0+1)+(2+3))"),
        ("binomial_tree", "((0+1)+(2+3))"),
        ("tree", "(((1+3)+0)+2)"),
        ("blueconnect", "((0+1)+(2+3))"),
        ("direct", "(((0+3)+2)+1)"),
        ("mesh2d", "((0+1)+(2+3))"),
    ],
)
def test_the_documented_order_of_sums(name: str, expected: str) -> None:
    shape = GroupShape(4, ((0, 1), (2, 3)))
    assert check_all_reduce([ALL_REDUCE[name](shape, rank) for rank in range(4)])[0] == expected


@for_each("size", RANKS)
def test_no_rank_is_an_inner_node_of_both_double_trees(size: int) -> None:
    for rank in range(size):
        schedule = ALL_REDUCE["double_binary_tree"](GroupShape(size), rank)
        adds = [sum(t.reduce for step in pipe for t in step.receives) for pipe in schedule.pipes]
        assert min(adds) == 0 or rank in (0, size - 1), (rank, adds)


@for_each("size", [2, 4, 6, 8, 12, 16])
def test_ring_and_butterfly_send_no_more_than_they_must(size: int) -> None:
    for name in ("ring", "butterfly", "binary_blocks", "blueconnect"):
        if name in ("butterfly", "binary_blocks") and size & (size - 1):
            continue
        for rank in range(size):
            schedule = ALL_REDUCE[name](GroupShape(size), rank)
            sent = sum(
                schedule.cuts[t.stop] - schedule.cuts[t.start] for s in schedule.pipes for x in s for t in x.sends
            )
            assert sent / schedule.cuts[-1] == pytest.approx(2 * (size - 1) / size)


def test_between_groups_blueconnect_sends_what_a_ring_of_groups_sends() -> None:
    groups = ((0, 1, 2), (3, 4), (5, 6, 7, 8))
    for group in groups:
        out = 0.0
        for rank in group:
            schedule = ALL_REDUCE["blueconnect"](GroupShape(9, groups), rank)
            for step in schedule.pipes[0]:
                for send in step.sends:
                    if send.peer not in group:
                        out += (schedule.cuts[send.stop] - schedule.cuts[send.start]) / schedule.cuts[-1]
        assert out == pytest.approx(2 * 2 / 3)


@for_each("size", [2, 3, 5, 13])
def test_on_a_line_the_mesh_sends_a_tensor_each_way_over_each_link_and_over_no_other(size: int) -> None:
    schedules = [ALL_REDUCE["mesh2d"](GroupShape(size, (tuple(range(size)),)), rank) for rank in range(size)]
    sent: Counter[tuple[int, int]] = Counter()
    for rank, schedule in enumerate(schedules):
        for step in schedule.pipes[0]:
            for send in step.sends:
                sent[rank, send.peer] += schedule.cuts[send.stop] - schedule.cuts[send.start]
    neighbours = [(rank, rank + 1) for rank in range(size - 1)]
    assert sent == {link: schedules[0].cuts[-1] for pair in neighbours for link in (pair, pair[::-1])}


@for_each("size", RANKS)
def test_rooted_operations(size: int) -> None:
    """Gather takes every chunk to rank 0 in as many steps as a binomial tree is deep; scatter brings them back."""
    gathered = carry_out([gather(rank, size) for rank in range(size)])
    assert [value.leaves for value in gathered[0]] == [(rank,) for rank in range(size)]
    assert len(gather(0, size).pipes[0]) == (size - 1).bit_length()
    scattered = carry_out([scatter(rank, size) for rank in range(size)])
    assert all(chunks[rank].leaves == (0,) for rank, chunks in enumerate(scattered))


@for_each("size", RANKS)
def test_all_to_all_takes_to_every_rank_what_the_others_have_for_it(size: int) -> None:
    steps = [all_to_all(rank, size).pipes[0] for rank in range(size)]
    for rank, mine in enumerate(steps):
        for step, (send,) in enumerate(each.sends for each in mine):
            (receive,) = steps[send.peer][step].receives
            assert (send.start, send.stop) == (send.peer, send.peer + 1)
            assert (receive.peer, receive.start, receive.stop) == (rank, size + rank, size + rank + 1)
        assert {step.sends[0].peer for step in mine} == {*range(size)} - {rank}


@for_each("size", RANKS)
def test_primitives(size: int) -> None:
    everybody = Counter(range(size))
    for segments in (1, 3):
        values = carry_out([broadcast(rank, size, segments) for rank in range(size)])
        assert all(value.leaves == (0,) for chunks in values for value in chunks)
    for algorithm in (all_gather, all_gather_direct):
        values = carry_out([algorithm(rank, size) for rank in range(size)])
        assert all([value.leaves for value in chunks] == [(i,) for i in range(size)] for chunks in values)
    values = carry_out([reduce_scatter(rank, size) for rank in range(size)])
    assert all(Counter(values[rank][rank].leaves) == everybody for rank in range(size))
