"""Shapes of networks."""

from __future__ import annotations

import networkx as nx
import pytest

from topologies.generators import BUILDERS, GENERATORS, Mesh, Star, mesh, star


def test_a_star_has_all_links_at_the_centre() -> None:
    graph = star(Star(data_centers=5, workers=3, rate=1e6, delay=0.01))
    assert set(graph.edges) == {("dc0", f"dc{number}") for number in range(1, 5)}
    assert set(nx.get_node_attributes(graph, "workers").values()) == {3}
    assert set(nx.get_edge_attributes(graph, "rate_bps").values()) == {1e6}


def test_a_mesh_has_every_pair() -> None:
    assert mesh(Mesh(data_centers=6)).number_of_edges() == 15


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_every_generator_connects_its_central_data_center(kind: str) -> None:
    graph = BUILDERS[kind](GENERATORS[kind](data_centers=7))
    assert nx.is_connected(graph)
    assert graph.graph["central"] in graph
