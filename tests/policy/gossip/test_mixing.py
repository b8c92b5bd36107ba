"""Graphs and weights: connected, stochastic, and as fast as their spectral gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.gossip.graphs import GRAPHS, Graph, is_connected, two_sides
from testbed.policy.gossip.graphs import given as given_graph
from testbed.policy.gossip.mixing import (
    LanAndWan,
    Metropolis,
    Mixing,
    Partners,
    PushToAll,
    PushToOne,
    RandomPairs,
    rounds_to_hear_of_all,
    rounds_to_tell_all,
)
from tests.for_each import for_each
from tests.policy.gossip.consensus import check, consensus_distance, matrix

SIZES = range(1, 18)


def spectral_gap(mixing: Mixing) -> float:
    """1 − |λ2| of one round (the geometric mean over a period): how fast models come together. 1 is at once."""
    product = np.eye(mixing.size)
    for round_ in range(mixing.period):
        product = matrix(mixing, round_) @ product
    if mixing.size == 1:
        return 1.0
    second = sorted(np.abs(np.linalg.eigvals(product)))[-2]
    return float(1.0 - second ** (1.0 / mixing.period))


@st.composite
def connected(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(2, 12))
    tree = [(rank, draw(st.integers(0, rank - 1))) for rank in range(1, size)]
    ranks = st.integers(0, size - 1)
    return given_graph(size, (*tree, *draw(st.lists(st.tuples(ranks, ranks), max_size=12))))


def mixed(mixing: Mixing, models: np.ndarray, rounds: int) -> np.ndarray:
    """What the workers do, without messages: values and push-sum weights side by side."""
    weights, steps = np.ones(len(models)), [matrix(mixing, round_) for round_ in range(mixing.period)]
    for round_ in range(rounds):
        step = steps[round_ % mixing.period]
        models, weights = step @ models, step @ weights
    return models / weights[:, None]


@for_each("name", GRAPHS)
def test_graphs_are_connected_and_weights_add_up(name: str) -> None:
    for size in SIZES:
        graph = GRAPHS[name](size)
        assert is_connected(graph), size
        assert all(rank in graph[other] and rank != other for rank in range(size) for other in graph[rank]), size
        check(Metropolis(graph), doubly=True)
        check(PushToAll(graph), doubly=False)
        check(PushToOne([range(size)]), doubly=False)


@given(connected())
def test_metropolis_weights_on_any_graph(graph: Graph) -> None:
    check(Metropolis(graph), doubly=True)
    check(PushToAll(graph), doubly=False)
    assert 0 < spectral_gap(Metropolis(graph)) <= 1


def test_gaps_are_ordered_ring_torus_exponential_complete() -> None:
    gaps = [spectral_gap(Metropolis(GRAPHS[name](16))) for name in ("ring", "torus", "exponential", "complete")]
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / 16)))
    assert gaps[-1] == pytest.approx(1)
    assert gaps[0] < 0.1 < gaps[1] < gaps[2] < 0.9


@for_each("name", ["ring", "torus", "exponential"])
def test_consensus_distance_decays_with_the_gap(name: str) -> None:
    mixing = Metropolis(GRAPHS[name](16))
    models = np.random.default_rng(1).normal(size=(16, 40))
    late, later = (consensus_distance(mixed(mixing, models, rounds).tolist()) for rounds in (20, 24))
    assert (later / late) ** (1 / 4) == pytest.approx(1 - spectral_gap(mixing), rel=0.03)
    assert np.allclose(mixed(mixing, models, 500), models.mean(axis=0), atol=1e-6)


@given(connected(), st.integers(0, 2**32 - 1))
def test_push_sum_finds_the_average_where_weights_are_not_doubly_stochastic(graph: Graph, seed: int) -> None:
    models = np.random.default_rng(seed).normal(size=(len(graph), 3))
    assert np.allclose(mixed(PushToAll(graph), models, 3000), models.mean(axis=0), atol=1e-6)


@for_each("size", [2, 4, 8, 16])
def test_pushing_to_one_at_doubling_distances_is_exact_after_log_rounds(size: int) -> None:
    models = np.random.default_rng(2).normal(size=(size, 5))
    mixing = PushToOne([range(size)])
    assert np.allclose(mixed(mixing, models, mixing.period), models.mean(axis=0))
    assert {rounds_to_tell_all(mixing, rank, rank) for rank in range(size)} == {mixing.period}


@for_each("size", [1, 2, 7, 16])
def test_random_pairs_change_and_keep_the_average(size: int) -> None:
    """Half of the squared spread is left after a round, on average; one of an odd number stays alone."""
    mixing = RandomPairs([range(size)], seed=3)
    check(mixing, doubly=True)
    alone = [sum(not mixing.part(round_, rank).receives for rank in range(size)) for round_ in range(mixing.period)]
    assert alone == [size % 2] * mixing.period
    models = np.random.default_rng(2).normal(size=(size, 5))
    assert np.allclose(mixed(mixing, models, 500), models.mean(axis=0), atol=1e-6)
    if size > 2:
        partners = {mixing.part(round_, 0).sends for round_ in range(mixing.period)}
        assert partners == {(other,) for other in range(1, size)} | ({()} if size % 2 else set())
        left = consensus_distance(mixed(mixing, models, 16).tolist()) / consensus_distance(models.tolist())
        assert left < 2**-6
    other = RandomPairs([range(16)], seed=4)
    assert size < 16 or [mixing.part(9, rank) for rank in range(16)] != [other.part(9, rank) for rank in range(16)]


def test_random_pairs_of_groups_stay_in_them() -> None:
    mixing = RandomPairs([[0, 1], [2, 3, 4]], seed=1)
    for round_ in range(8):
        assert mixing.part(round_, 0).sends == (1,)
        assert set(mixing.part(round_, 3).sends) <= {2, 4}


def test_rounds_inside_and_across_repeat_together() -> None:
    inside, across = PushToOne([range(4)]), PushToOne([range(8)])  # these repeat after 2 and 3 rounds
    mixing = LanAndWan(inside, across, 2)
    for round_ in range(2 * mixing.period):
        kind = across if round_ % 2 else inside
        assert mixing.part(round_, 1) == kind.part(round_ // 2, 1)
        assert mixing.part(round_, 1) == mixing.part(round_ + mixing.period, 1)


def test_how_long_a_word_travels() -> None:
    for travels in (rounds_to_hear_of_all, rounds_to_tell_all):
        assert travels(Metropolis(GRAPHS["ring"](9)), 2, 5) == 4
        assert travels(Metropolis(GRAPHS["complete"](9)), 8, 0) == 1
        assert travels(Metropolis(GRAPHS["ring"](1)), 0, 3) == 0
        with pytest.raises(ValueError, match="connected"):
            travels(Metropolis(given_graph(4, [(0, 1), (2, 3)])), 0, 0)


@for_each("size", [2, 7, 16])
def test_a_word_among_random_pairs_travels_as_they_are_drawn(size: int) -> None:
    mixing = RandomPairs([range(size)], seed=5)
    for since in range(10):
        told = {3 % size}
        tell = rounds_to_tell_all(mixing, 3 % size, since)
        for round_ in range(since, since + tell):
            assert len(told) < size
            told |= {to for rank in told for to in mixing.part(round_, rank).sends}
        assert len(told) == size
        heard = {3 % size}
        for round_ in reversed(range(since, since + rounds_to_hear_of_all(mixing, 3 % size, since))):
            heard |= {source for rank in heard for source, _ in mixing.part(round_, rank).receives}
        assert len(heard) == size


def test_one_side_asks_and_every_edge_is_used() -> None:
    for name, size in (("ring", 8), ("complete", 5), ("torus", 16)):
        graph = GRAPHS[name](size)
        partners = [Partners(graph, rank) for rank in range(size)]
        asked = {(rank, one.partner(draw)) for rank, one in enumerate(partners) if one.asks for draw in range(20)}
        assert {frozenset(pair) for pair in asked} == {frozenset((a, b)) for a in range(size) for b in graph[a]}
        if sides := two_sides(graph):
            assert tuple(one.asks for one in partners) == sides
    assert not Partners(GRAPHS["ring"](1), 0).asks
