"""Generated networks and traces: shapes, bounds, means, and that the seed alone decides."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest

from testbed.ids import slug
from tests.for_each import for_each
from topologies.generators import GENERATORS, Dumbbell, FatTree, Geometric, Waxman
from topologies.graph import data_centers, fibre_delay_s, great_circle_km, routers, unique
from topologies.traces.synthetic import SYNTHETIC, Levels, Markov, Redraw, Sine, Walk, make


def test_a_sine_keeps_its_mean_and_bounds() -> None:
    steps, period = make("sine", Sine(0.5, 1.5, 60.0, 1.0), "")
    values = [value for _, value in steps]
    assert len(values) == 60 and period == 60.0
    assert math.fsum(values) / 60 == pytest.approx(1.0)
    assert 0.5 <= min(values) < 0.51 and 1.49 < max(values) <= 1.5


def test_a_walk_stays_between_its_bounds() -> None:
    steps, _ = make("walk", Walk(0.25, 1.5, 0.5, 1.0, 5000.0), "x")
    values = [value for _, value in steps]
    assert 0.25 <= min(values) < 0.26 and 1.49 < max(values) <= 1.5
    jumps = [abs(math.log(b / a)) for a, b in pairwise(values)]
    assert 0.2 < math.fsum(jumps) / len(jumps) < 0.5, "a step of 0.5 is 0.4 on average, reflections shorten it"


def test_markov_spends_its_means_in_either_state() -> None:
    steps, length = make("markov", Markov(0.1, 1.0, 20.0, 5.0, 40_000.0), "x")
    ends = [time for time, _ in steps[1:]] + [length]
    high = math.fsum(end - time for (time, value), end in zip(steps, ends, strict=True) if value == 1.0)
    assert high / length == pytest.approx(0.8, abs=0.03)
    assert {value for _, value in steps} == {0.1, 1.0}


def test_redraw_is_uniform() -> None:
    steps, _ = make("redraw", Redraw(0.2, 1.0, 1.0, 4000.0), "x")
    values = sorted(value for _, value in steps)
    assert math.fsum(values) / len(values) == pytest.approx(0.6, abs=0.02)
    assert values[1000] == pytest.approx(0.4, abs=0.03)


@for_each("kind", ["walk", "markov", "redraw"])
def test_the_seed_alone_decides(kind: str) -> None:
    options: Any = SYNTHETIC[kind]
    assert make(kind, options(), "1/a>b") == make(kind, options(), "1/a>b") != make(kind, options(), "1/b>a")
    assert make(kind, options(seed=7), "1/a>b") == make(kind, options(seed=7), "2/b>a")


@for_each(
    ("options", "wrong"),
    [
        (Levels("1 x"), "levels"),
        (Levels(""), "levels"),
        (Levels("1 -1"), "levels"),
        (Sine(2.0, 1.0), "low"),
        (Sine(period=1.0, step=2.0), "step"),
        (Walk(2.0, 1.0), "low"),
        (Redraw(length=1e9), "step"),
        (Markov(low=2.0), "low"),
    ],
)
def test_options_that_make_no_sense(options: Any, wrong: str) -> None:
    assert [option for option, _, _ in options.problems()] == [wrong]


def test_a_dumbbell_has_one_bottleneck() -> None:
    graph = Dumbbell(data_centers=5, rate=5e6, access_rate=50e6).build()
    assert routers(graph) == ["left", "right"] and len(data_centers(graph)) == 5
    assert [(a, b) for a, b, data in graph.edges(data=True) if data["rate_bps"] == 5e6] == [
        ("left", "right"),
        ("right", "left"),
    ]
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
