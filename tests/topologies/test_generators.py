"""Shapes of networks."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import pytest

from tests.for_each import for_each
from topologies.generators import GENERATORS, Dumbbell, FatTree, Geometric, Waxman
from topologies.graph import data_centers, fibre_delay_s, great_circle_km, routers, slug, unique


def test_a_dumbbell_has_one_bottleneck() -> None:
    graph = Dumbbell(data_centers=5, rate=5e6, access_rate=50e6).build()
    assert routers(graph) == ["left", "right"] and len(data_centers(graph)) == 5
    assert [(a, b) for a, b, data in graph.edges(data=True) if data["rate_bps"] == 5e6] == [
        ("left", "right"), ("right", "left"),
    ]  # fmt: skip
    assert not nx.is_connected(nx.restricted_view(graph.to_undirected(), [], [("left", "right")]))


@for_each("ports", [2, 4, 6])
def test_a_fat_tree_has_full_bisection(ports: int) -> None:
    """Al-Fares: k^2/2 racks with k/2 links up each, k^2/4 core switches with one link to each of k pods."""
    graph = FatTree(ports=ports, rate=1.0).build()
    assert len(data_centers(graph)) == FatTree(ports=ports).data_centers == ports**2 // 2
    assert len(routers(graph)) == ports**2 // 2 + ports**2 // 4
    assert {graph.out_degree(name) for name in graph if name.startswith("core")} == {ports}
    assert {graph.out_degree(name) for name in graph if name.startswith("rack")} == {ports // 2}
    first, last = "rack0", f"rack{ports**2 // 2 - 1}"
    assert nx.maximum_flow_value(graph, first, last, capacity="rate_bps") == ports / 2


@for_each("kind", sorted(GENERATORS))
def test_every_generator_connects_its_central_data_center(kind: str) -> None:
    size = {"ports": 4} if kind == "fat_tree" else {"data_centers": 7}
    options = GENERATORS[kind](**size)
    graph = options.build()
    assert nx.is_strongly_connected(graph)
    assert graph.graph["central"] in data_centers(graph)
    assert len(data_centers(graph)) == options.data_centers
    assert {data["workers"] for _, data in graph.nodes(data=True)} - {None} == {options.workers}


@for_each("options", [Geometric, Waxman])
def test_random_networks_come_from_their_seed_alone(options: Any) -> None:
    def drawn(seed: int) -> Any:
        return list(options(data_centers=20, seed=seed).build().edges(data=True))

    assert drawn(3) == drawn(3) != drawn(4)


def test_a_waxman_graph_prefers_short_links() -> None:
    graph = Waxman(data_centers=120, alpha=0.1, beta=1.0).build()
    places = nx.get_node_attributes(graph, "xy")
    lengths = [math.dist(places[a], places[b]) for a, b in graph.edges]
    everyone = [math.dist(a, b) for a in places.values() for b in places.values() if a != b]
    assert sum(lengths) / len(lengths) < 0.5 * sum(everyone) / len(everyone)


def test_distances_on_the_globe() -> None:
    assert great_circle_km((0, 0), (0, 90)) == pytest.approx(math.pi / 2 * 6371)
    assert great_circle_km((90, 0), (-90, 17)) == pytest.approx(math.pi * 6371)
    assert great_circle_km((50.11, 8.68), (35.68, 139.69)) == pytest.approx(9340, rel=0.01)  # Frankfurt to Tokyo
    assert fibre_delay_s(199_861.6387, 1.0) == 1.0


@for_each(("label", "name"), [("Zürich (CH)", "zurich-ch"), ("42", "n42"), ("東京", ""), ("a" * 50, "a" * 32)])
def test_labels_become_names(label: str, name: str) -> None:
    assert slug(label) == name


def test_equal_names_are_numbered() -> None:
    taken: set[str] = set()
    assert [unique(name, taken) for name in ("a", "a", "b" * 32, "b" * 32)] == ["a", "a-2", "b" * 32, "b" * 30 + "-2"]
