"""Networks made of measurements: matrices and lists, what is missing, what differs, and what is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ScenarioError
from tests.for_each import for_each
from topologies.graph import Graph
from topologies.measurements import read_measurements
from topologies.traces import NetworkTraces

RTT = "rtt ms,Virginia,Frankfurt,Tokyo\nVirginia,0,88,167\nFrankfurt,90,0,224\nTokyo,165,,0\n"
BANDWIDTH = ",virginia,frankfurt,tokyo\nvirginia,-,180,95\nfrankfurt,160,-,60\ntokyo,90,0,-\n"
OVER_TIME = """\
timestamp,src,dst,mbps,rtt_ms
1718000000,a,b,50,20
1718000001,a,c,30,80
1718000000,b,a,40,22
1718000010,a,b,0,20
1718000011,a,c,33,90
1718000010,b,a,44,22
"""


def read(folder: Path, files: dict[str, str], **settings: Any) -> tuple[Graph[str], NetworkTraces]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return read_measurements([folder / name for name in files], **settings)


def test_matrices_of_round_trips_and_of_rates(tmp_path: Path) -> None:
    graph, traces = read(tmp_path, {"rtt.csv": RTT, "bandwidth_mbps.csv": BANDWIDTH})
    assert list(graph) == ["virginia", "frankfurt", "tokyo"] and graph.graph["central"] == "virginia"
    assert graph.edges["virginia", "frankfurt"]["delay_s"] == 0.0445, "half of the mean of both round trips"
    assert graph.edges["tokyo", "frankfurt"]["delay_s"] == 0.112, "measured one way only"
    rates = [graph.edges[ends]["rate_bps"] for ends in (("virginia", "frankfurt"), ("frankfurt", "virginia"))]
    assert rates == [180e6, 160e6] and graph.edges["tokyo", "frankfurt"]["rate_bps"] == 60e6
    notes = "\n".join(graph.graph["notes"])
    assert "rates of 0 count as not measured (1)" in notes
    assert "the rate of frankfurt-tokyo was measured one way only, and counts for both" in notes
    assert traces.traces == {} and graph.graph["routing"] == "hops", "a pair's link stands for the path between them"


@for_each(
    "column, is_noted",
    [("loss", True), ("loss %", False)],
)
def test_losses_without_a_unit_are_told_to_be_shares(column: str, is_noted: bool, tmp_path: Path) -> None:
    """Ping reports 0.5 % as 0.5, which as a share would be half of all packets."""
    graph, _ = read(tmp_path, {"l.csv": f"src,dst,mbps,rtt ms,{column}\na,b,10,20,0.5\n"})
    assert graph.edges["a", "b"]["loss"] == (0.5 if is_noted else 0.005)
    assert ("'loss' counts as shares, of which 0.5 is 50 %" in "\n".join(graph.graph["notes"])) == is_noted


@for_each(
    "name, text",
    [
        ("ping.tsv", "\ta\tb\tc\na\t\t10 ms\t30 ms\nb\t12 ms\t\t\nc\t30 ms\t\t\n"),
        ("x.txt", "delay/us a b c\na 0 5500 15000\nb 5500 0 NA\nc 15000 NA 0\n"),
        ("list.csv", "from,to,ping (ms)\na,b,10\nb,a,12\na,c,30\n"),
        ("y.csv", "A,B,RTT [s]\na,b,0.010\na,b,0.012\na,b,0.011\nc,a,0.030\n"),
    ],
)
def test_one_network_written_in_many_ways(name: str, text: str, tmp_path: Path) -> None:
    graph, _ = read(tmp_path, {name: text}, rate_bps=1e8, central="c")
    delays = {ends: data["delay_s"] for *ends, data in graph.edges(data=True) for ends in [tuple(ends)]}
    assert delays == {("a", "b"): 0.0055, ("b", "a"): 0.0055, ("a", "c"): 0.015, ("c", "a"): 0.015}
    assert "b-c was not measured: no link; messages go over other sites" in graph.graph["notes"]
    assert graph.graph["central"] == "c"


@for_each(
    ("name", "times", "cure"),
    [
        ("when", ("2024-06-10T12:00:00Z", "2024-06-10T12:05:00Z"), "when"),
        ("second", ("0.5", "1.5"), "second in s"),
        ("clock", ("1718000000", "1718000010"), "clock"),
        ("hop", ("3", "3"), ""),
        ("host", ("x", "y"), ""),
    ],
)
def test_a_column_that_looks_like_times_is_told_with_the_cure(
    name: str, times: tuple[str, str], cure: str, tmp_path: Path
) -> None:
    lines = [f"{time},{ends},{30 + number}" for number, time in enumerate(times) for ends in ("a,b", "b,a")]
    files = {"all.csv": "\n".join([f"{name},src,dst,mbps", *lines, ""])}
    graph, traces = read(tmp_path, files, delay_s=0.02)
    notes = "\n".join(graph.graph["notes"])
    assert f"columns without effect: '{name}'" in notes and not traces.traces
    assert (f"'{name}' looks like times, " in notes) == bool(cure)
    if cure:
        assert f"--set columns.time='{cure}'" in notes
        _, traces = read(tmp_path, files, delay_s=0.02, columns={"time": cure})
        assert len(traces.traces) == 2


def test_names_that_a_scenario_writes_otherwise_are_told(tmp_path: Path) -> None:
    graph, _ = read(tmp_path, {"rtt.csv": "src,dst,rtt_ms\nZürich,New York,80\nlyon,Zürich,10\n"}, rate_bps=1e8)
    told = "a scenario writes the names of sites in small letters: 'Zürich' is zurich, 'New York' is new-york"
    assert told in graph.graph["notes"] and "lyon" in graph
    graph, _ = read(tmp_path, {"rtt.csv": "src,dst,rtt_ms\na,b,80\n"}, rate_bps=1e8)
    assert not any("small letters" in note for note in graph.graph["notes"])


def test_every_link_follows_its_own_rows(tmp_path: Path) -> None:
    """Of one file over time; and an outage does not count for the rate of the link, which is the median."""
    graph, read_traces = read(tmp_path, {"all.csv": OVER_TIME})
    rates = read_traces.traces["a", "b", "rate"]
    assert (rates.times_s, rates.values) == ((0.0, 10.0), (50e6, 0.0)) and graph.edges["a", "b"]["rate_bps"] == 50e6
    late = read_traces.traces["a", "c", "rate"]
    assert (late.times_s, late.values) == ((0.0, 11.0), (30e6, 33e6))
    assert read_traces.traces["c", "a", "rate"].values == late.values, "measured one way"
    assert read_traces.traces["a", "c", "delay"].values == (0.04, 0.045)
    assert {trace.length_s for trace in read_traces.traces.values()} == {21.0}, "all repeat together"
    assert "all.csv: the first time, 1718000000, became 0" in graph.graph["notes"]


@for_each(
    "files, settings, problem",
    [
        ({"m.csv": ",a,b\na,0,1\nb,1,0\n"}, {}, "m.csv:1: what its numbers are, and in which unit, is not said"),
        ({"m.csv": "1,2\n3,4\n"}, {}, "m.csv:1: is neither a list nor a matrix"),
        ({"rtt.csv": RTT}, {}, "rtt.csv: no rate for frankfurt-tokyo, frankfurt-virginia, tokyo-virginia (add"),
        ({"l.csv": "src,dst,latency_ms\na,b,1\n"}, {}, "l.csv:1: has no column for a rate: its columns are 'src',"),
        ({"l.csv": "src,dst,rtt\na,b,1\n"}, {}, "l.csv:1: column 'rtt' has no unit (say which: columns: {rtt: rtt in"),
        ({"l.csv": "src,dst,rtt_s\na,b,80\n"}, {}, "l.csv:2: 80 in 'rtt_s' is 40 s, outside [0, 10]"),
        ({"l.csv": f"src,dst,rtt_ms\n{'a' * 40}1,b,1\n{'a' * 40}2,b,1\n"}, {}, "l.csv:3: 'aaaaa"),
        ({"rtt_ms.csv": ",a,b,A\na,0,1,2\nb,1,0,1\nA,2,1,0\n"}, {}, "rtt_ms.csv:1: 'a' has two columns"),
        ({"l.csv": "src,dst,rtt_ms\na,b,1\nc,d,1\n"}, {"rate_bps": 1e6}, "l.csv: no measurement connects c, d with"),
        ({"l.csv": "src,dst,rtt_ms\na,b,1\n"}, {"rate_bps": 1e6, "central": "x"}, "central: no site named 'x' in"),
    ],
)
def test_what_is_missing_is_named(
    files: dict[str, str], settings: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(tmp_path, files, **settings)
    assert str(refused.value).startswith(problem), refused.value


def star(folder: Path, sites: int) -> Path:
    rows = (f"hub,s{number},{number % 90 + 5},{number % 70 + 30}" for number in range(1, sites))
    path = folder / "star.csv"
    path.write_text("from,to,rtt_ms,mbit_s\n" + "\n".join(rows) + "\n")
    return path


def test_ten_thousand_sites_are_read_without_a_list_of_all_their_pairs(tmp_path: Path) -> None:
    path = star(tmp_path, 10_000)
    tracemalloc.start()
    graph, _ = read_measurements([path], central="hub")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 400e6  # fifty million pairs take 4 GB
    assert len(graph) == 10_000
    assert graph.graph["notes"][-1].startswith("s1-s2, s1-s3, s1-s4, s1-s5 and 49984997 more were not measured")


def test_among_very_many_sites_the_global_servers_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"central: missing, and star.csv has 1001 sites \(the nearest"):
        read_measurements([star(tmp_path, 1001)])
