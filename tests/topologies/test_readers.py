"""Graph files: what is read, what is repaired, and the notes about it."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.errors import ScenarioError
from tests.for_each import for_each
from tests.topologies.zoo import GML, SNDLIB, TRIANGLE, edge, graphml, vertex
from topologies.graph import Graph, data_centers, great_circle_km
from topologies.readers import GraphReading, parse_graph
from topologies.text_file import TextFile


def read(text: str, name: str = "t.graphml", **reading: Any) -> Graph[str]:
    return parse_graph(TextFile.of(name, text), GraphReading(**reading))


def notes(graph: Graph[str]) -> str:
    return "\n".join(graph.graph["notes"])


def test_graphml_of_the_topology_zoo() -> None:
    graph = read(graphml(*TRIANGLE))
    assert data_centers(graph) == ["london", "paris", "zurich"] and graph.graph["central"] == "paris"
    assert graph.edges["london", "paris"]["rate_bps"] == graph.edges["paris", "london"]["rate_bps"] == 10e9
    kilometres = great_circle_km((51.51, -0.13), (48.86, 2.35))
    assert kilometres == pytest.approx(343, rel=0.01)
    assert graph.edges["london", "paris"]["delay_s"] == pytest.approx(1.5 * kilometres / 199_861.6, abs=1e-6)
    assert "great circle x 1.5 at 2/3" in notes(graph)


def test_gml_of_the_topology_zoo_has_parallel_links_texts_of_several_lines_and_numbers_without_a_point() -> None:
    parallel = '  edge [ source 1 target 0 LinkSpeedRaw 2e9 ]  # "another\n]\n'
    text = GML.replace("plain", "\n\nplain")[:-2] + parallel
    assert read(text, "t.gml").edges["london", "paris"]["rate_bps"] == 3e9


def test_sndlib() -> None:
    graph = read(SNDLIB, "abilene.xml")
    assert list(graph) == ["atlang", "chinng", "nycmng"]
    assert graph.edges["atlang", "chinng"]["rate_bps"] == 9920e6, "Mbit/s, as nothing is said"
    assert graph.edges["chinng", "nycmng"]["rate_bps"] == 2480e6
    assert "1 links have no preinstalled capacity" in notes(graph)
    assert read(SNDLIB, "a.xml", rate_unit="kbit/s").edges["atlang", "chinng"]["rate_bps"] == 9.92e6


@for_each(
    ("said", "rate"),
    [
        ({"raw": "10e9"}, 10e9),
        ({"speed": "2.5", "units": "G"}, 2.5e9),
        ({"text": "155 Mbps"}, 155e6),
        ({"text": "10-20Gbps"}, 10e9),
        ({"text": "STM-16"}, 2488.32e6),
        ({"text": "OC-48c"}, 2488.32e6),
        ({"text": "1 GB/s"}, 1e9),
        ({}, 7e6),
        ({"text": "2x10GE ring"}, 7e6),
        ({"text": "2 x 10 Gbps"}, 20e9),
        ({"text": "10 Gbps x 2"}, 20e9),
        ({"text": "STM-16 x 2"}, 4976.64e6),
        ({"raw": "2e10", "text": "2 x 10 Gbps"}, 20e9),
        ({"text": "1-2,5 Gbps"}, 1e9),
        ({"text": "1.2.3 Gbps"}, 7e6),
        ({"text": f"{'9' * 400} x 10 Gbps"}, 7e6),
    ],
)
def test_rates_come_from_where_they_can(said: dict[str, str], rate: float) -> None:
    graph = read(graphml(vertex("0"), vertex("1"), edge("0", "1", **said)), rate_bps=7e6)
    assert graph.edges["london", "paris"]["rate_bps"] == pytest.approx(rate)


SHADOW = """
graph [
  directed {directed}
  node [ id 0 host_bandwidth_up "100 Mbit" host_bandwidth_down "1 Gbit" ]
  node [ id 1 host_bandwidth_up "20 Mibit" host_bandwidth_down "50 Mbit" ]
  edge [ source 0 target 0 latency "1 ms" packet_loss 0.0 ]
  edge [ source 0 target 1 {edge} ]
]
"""


@for_each(
    ("edge", "delay_s", "loss", "rates_bps"),
    [
        ('latency "50 ms" packet_loss 0.01', 0.05, 0.01, (50e6, 20 * 2**20)),
        ("latency 50.0 packetloss 0.01", 0.05, 0.01, (50e6, 20 * 2**20)),
        ('latency "250 us" bandwidth "2 MB/s"', 250e-6, 0.0, (16e6, 16e6)),
        ("packet_loss 0.25 LinkSpeedRaw 1e9", 0.005, 0.25, (1e9, 1e9)),
    ],
)
@for_each("default_bps", [None, 7e6])
def test_what_a_file_says_of_its_links_wins(
    edge: str, delay_s: float, loss: float, rates_bps: tuple[float, float], default_bps: float | None
) -> None:
    """As Shadow's files do: latency, loss and bandwidth. Defaults are for what a file does not say."""
    graph = read(SHADOW.format(directed=0, edge=edge), "t.gml", rate_bps=default_bps, delay_s=0.005)
    there, back = graph.edges["n0", "n1"], graph.edges["n1", "n0"]
    assert (there["rate_bps"], back["rate_bps"]) == pytest.approx(rates_bps)
    assert there["delay_s"] == back["delay_s"] == pytest.approx(delay_s) and there["loss"] == back["loss"] == loss
    assert "great circle" not in notes(graph)


def test_directed_edges_have_their_own_latencies() -> None:
    text = SHADOW.format(directed=1, edge='latency "50 ms" ]\n  edge [ source 1 target 0 latency "20 ms"')
    graph = read(text, "t.gml")
    assert (graph.edges["n0", "n1"]["delay_s"], graph.edges["n1", "n0"]["delay_s"]) == (0.05, 0.02)


@for_each(
    ("edge", "problem"),
    [
        ('latency "50 parsecs"', "t.gml:7: latency '50 parsecs' is no time (write latency \"50 ms\")"),
        ("latency 50000.0", "t.gml:7: a delay of 50 s is outside [0, 10]"),
        ("bandwidth 100", "t.gml:7: bandwidth '100' has no unit (write bandwidth \"100 Mbit\")"),
        ('latency "1 ms" packet_loss 1.0', "t.gml:7: a loss of 1 as a share is outside [0, 0.5]"),
    ],
)
def test_what_is_no_latency_is_refused_with_its_line(edge: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(SHADOW.format(directed=0, edge=edge), "t.gml")
    assert str(refused.value).startswith(problem)


def test_parallel_links_add_up_and_loops_go() -> None:
    graph = read(graphml(*TRIANGLE, edge("1", "0", raw="1e9"), edge("2", "2", raw="1e9")))
    assert graph.edges["paris", "london"]["rate_bps"] == 11e9
    assert "1 parallel links" in notes(graph) and "1 links from a vertex to itself" in notes(graph)


def test_other_networks_are_left_out_unless_wanted() -> None:
    text = graphml(*TRIANGLE, vertex("7", internal="0"), edge("7", "0", raw="1e9"))
    assert "city-7" not in read(text) and "left out: 1 vertex of other networks" in notes(read(text))
    assert "city-7" in read(text, external=True)
