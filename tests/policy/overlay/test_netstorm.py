"""NetStorm's trees: cheapest paths, by an independent solver, hung on the server; planned anew when rates change."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.policy.overlay.base import ROOT, GroupSetting
from testbed.policy.overlay.netstorm import NetStorm, fastest_paths, performance
from testbed.policy.overlay.parents import Parents


def setting(members: int, rates: dict[tuple[int, int], float]) -> GroupSetting:
    return GroupSetting("root", tuple(f"m{rank}" for rank in range(members)), 0, lambda: rates)


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, dict[tuple[int, int], float]]:
    """Members, and rates both ways of a connected graph over them and the root."""
    members = draw(st.integers(1, 8))
    edges = {(draw(st.integers(ROOT, member - 1)), member) for member in range(members)}
    pairs = [(a, b) for a in range(ROOT, members) for b in range(a + 1, members)]
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=12)))
    rate = st.floats(1, 1000)
    return members, {way: draw(rate) for a, b in sorted(edges) for way in ((a, b), (b, a))}


def undirected(tree: Parents) -> nx.Graph:
    return nx.Graph([(member, above) for member, above in enumerate(tree.parents)])


@given(networks(), st.data())
def test_paths_to_the_hub_are_the_cheapest_there_are(
    network: tuple[int, dict[tuple[int, int], float]], data: st.DataObject
) -> None:
    members, rates = network
    hub = data.draw(st.integers(ROOT, members - 1))
    graph = nx.Graph()
    for one, other in rates:
        graph.add_edge(one, other, cost=1 / rates[one, other] + 1 / rates[other, one])
    tree = undirected(fastest_paths(hub, members, rates))
    assert nx.is_tree(tree) and len(tree) == members + 1
    for node in tree:
        path = nx.shortest_path(tree, node, hub)
        cost = sum(graph.edges[edge]["cost"] for edge in itertools.pairwise(path))
        assert cost == pytest.approx(nx.shortest_path_length(graph, node, hub, weight="cost"))


@given(networks(), st.integers(1, 4), st.lists(st.integers(1, 100), min_size=1, max_size=9))
def test_every_chunk_has_a_tree_of_the_best(
    network: tuple[int, dict[tuple[int, int], float]], count: int, sizes: list[int]
) -> None:
    members, rates = network
    trees = NetStorm(setting(members, rates), NetStorm.Options(trees=count)).trees(dict(enumerate(sizes)))
    assert set(trees) == set(range(len(sizes)))
    assert len({tree.parents for tree in trees.values()}) <= count
    every = [performance(fastest_paths(hub, members, rates), rates) for hub in range(ROOT, members)]
    used = {performance(tree, rates) for tree in trees.values()}
    assert min(used) >= sorted(every, reverse=True)[min(count, len(every)) - 1] * (1 - 1e-9)


def line(rate: float) -> dict[tuple[int, int], float]:
    """root - 0 - 1, and a direct way from the root to 1 at ``rate``."""
    ways = {(-1, 0): 10.0, (0, 1): 10.0, (-1, 1): rate}
    return {way: value for (a, b), value in ways.items() for way in ((a, b), (b, a))}


def test_it_plans_anew_when_a_link_has_changed_and_forgets() -> None:
    policy = NetStorm(setting(2, line(8.0)), NetStorm.Options(trees=1, change=0.1, expiry=5))
    assert policy.trees({0: 1})[0].parents == (-1, -1)
    assert not policy.revise(0)
    for way in ((-1, 1), (1, -1)):
        policy.measured(*way, 0.5, 3)
    assert policy.revise(3)
    assert policy.trees({0: 1})[0].parents == (-1, 0)
    assert not policy.revise(8)
    assert policy.revise(9)  # six rounds later the measurement is too old, and the Plan's rate stands again
    assert policy.trees({0: 1})[0].parents == (-1, -1)
