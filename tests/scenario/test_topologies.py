"""Topologies by name and by file, what a scenario changes in them, and traces in all their forms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import LinkPlan, Plan
from testbed.scenario import loads
from testbed.scenario.look_up import network
from testbed.scenario.reading.declared import to_yaml
from testbed.settings.series import Series
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD
from tests.topologies.zoo import TRIANGLE, edge, graphml, vertex

HEAD = "version: 1\nname: used\nseed: 3\nrun: {on: simulate}\ntraining: {model: mlp, data: digits, rounds: 2}\n"


def used(text: str) -> str:
    return f"{HEAD}topology: {{{text}}}\n"


def plan_of(text: str, folder: Path | None = None, *overrides: str) -> Plan:
    return build_plan(loads(used(text), "s.yaml", overrides, folder))


def links(plan: Plan) -> dict[str, LinkPlan]:
    return {link.name: link for link in plan.network.links}


def refusal(text: str, folder: Path | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        loads(used(text), "s.yaml", folder=folder)
    return str(caught.value)


# ---- by name --------------------------------------------------------------------------------------------------------


def test_changes_by_name_and_by_ends() -> None:
    plan = plan_of(
        "use: hmc4, data_centers: [{name: eu, workers: 5, lan: {rate: 1 Gbit/s}}], lan: {rate: 2 Gbit/s}, "
        "links: [{between: [asia, us], rate: 50 Mbit/s, loss: 1 %}, {from: eu, to: us, delay: 9 ms}]"
    )
    found = links(plan)
    assert found["us>asia"].rate_bps == found["asia>us"].rate_bps == 50e6 and found["asia>us"].loss == 0.01
    assert (found["eu>us"].delay_s, found["us>eu"].delay_s) == (0.009, 0.05155)
    assert [node.data_center for node in plan.with_role("worker")].count("eu") == 5
    assert {site.name: site.lan_rate_bps for site in plan.network.sites} == {
        "us": 2e9,
        "eu": 1e9,
        "asia": 2e9,
        "aus": 2e9,
    }


def test_some_sites_only() -> None:
    """In a mesh the others go; in a network with routers, those on the way stay."""
    plan = plan_of("use: gaia-60x, sites: [sg, br]")
    assert set(links(plan)) == {"sg>br", "br>sg"} and plan.network.routers == ()
    assert plan.network.sites[0].name == "sg" and plan.network.sites[0].central
    isp = plan_of("use: simblock6, sites: [na, jp], central: jp")
    assert isp.network.routers == ("na-isp", "jp-isp") and len(isp.network.links) == 6
    storm = plan_of("use: netstorm9, sites: [h1, h9]")
    assert (
        set(storm.network.routers) == {"h2", "h5", "h7", "h8"}
        or len(storm.network.routes["h1>h9"]) == len(storm.network.routers) + 1
    )


def test_what_is_resolved_needs_no_name() -> None:
    scenario = loads(used("use: netstorm9, speed: 180, links: [{between: [h1, h2], rate: 9 Mbit/s}]"))
    text = scenario.to_yaml()
    assert "use:" not in text and loads(text) == scenario
    assert build_plan(loads(text)) == build_plan(scenario)


@for_each(
    ("text", "said"),
    [
        ("use: hmc5", "s.yaml:6:17: topology.use: 'hmc5' is not a built-in topology (did you mean 'hmc4'?)"),
        ("use: hmc4, wokers: 2", "s.yaml:6:23: topology.wokers: unknown key (did you mean 'workers'?)"),
        ("use: hmc4, scale: 0", "s.yaml:6:30: topology.scale: 0 is outside [1e-06, 1e+06]"),
        (
            "use: hmc4, sites: [us, mars]",
            "s.yaml:6:35: topology.sites[1]: no data centre named 'mars' (one of us, eu, asia, aus)",
        ),
        (
            "use: dtfm10, streams: 4",
            "s.yaml:6:34: topology.streams: has no effect on 'dtfm10', whose rates were not measured "
            "with one connection (use hmc4 or aws11, or 'scale')",
        ),
        (
            "use: hmc4, rate: 5 Mbit/s",
            "s.yaml:6:29: topology.rate: has no effect on 'hmc4', which has its own (it is for graph files and "
            "measurements)",
        ),
        (
            "use: netstorm9, links: [{between: [h1, h9]}]",
            "s.yaml:6:36: topology.links[0]: there is no link from 'h1' to 'h9' (links here change others)",
        ),
        (
            "use: hmc4, links: [{rate: 1 Mbit/s}]",
            "s.yaml:6:31: topology.links[0]: must name two ends (write 'between: [a, b]', or 'from: a' and 'to: b')",
        ),
        (
            "use: net.json",
            "s.yaml:6:17: topology.use: '.json' is not an ending of a topology file "
            "(one of .graphml, .gml, .xml, .yaml, .yml, or name a 'reader')",
        ),
        (
            "use: a.yaml",
            "s.yaml:6:17: topology.use: file 'a.yaml' is relative to a scenario file, but there is none",
        ),
    ],
)
def test_mistakes_point_at_themselves(text: str, said: str) -> None:
    assert refusal(text) == said


# ---- by file --------------------------------------------------------------------------------------------------------


def test_a_graph_file(tmp_path: Path) -> None:
    (tmp_path / "zoo.graphml").write_text(graphml(*TRIANGLE, vertex("7", internal="0"), edge("7", "0", raw="1e9")))
    plan = plan_of("use: zoo.graphml, scale: 1000, central: london, sites: [london, zurich]", tmp_path)
    assert [site.name for site in plan.network.sites] == ["london", "zurich"] and plan.network.routers == ("paris",)
    assert links(plan)["london>paris"].rate_bps == 10e6
    left_out = "topology: zoo.graphml: left out: 1 vertex of other networks"
    assert any(warning.startswith(left_out) for warning in plan.warnings)
    assert any("great circle x 1.5" in warning for warning in plan.warnings)


def test_our_own_file_and_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(to_yaml(network("simblock6").topology))
    assert plan_of("use: net.yaml", tmp_path).network == plan_of("use: simblock6").network
    (tmp_path / "bad.yaml").write_text(
        "data_centers:\n- {name: a, central: true}\n- {name: b}\nlinks:\n- {between: [a, c], rate: 5, delay: 1 ms}\n"
    )
    said = refusal("use: bad.yaml", tmp_path)
    assert said.startswith("s.yaml:6:17: topology.use: bad.yaml:5:27: links[0].rate: 5 has no unit")


def test_files_lie_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "net.yaml").write_text(to_yaml(network("hmc4").topology))
    assert "lies outside the scenario's folder" in refusal("use: ../net.yaml", tmp_path / "inside")
    assert (
        refusal("use: gone.gml", tmp_path)
        == "s.yaml:6:17: topology.use: gone.gml: no such file (the path is relative to the scenario's folder)"
    )


@for_each("name", ["hmc4", "netstorm9", "simblock6", "fat_tree", "waxman"])
def test_written_out_it_is_the_same(name: str, tmp_path: Path) -> None:
    found = network(name)
    (tmp_path / "net.yaml").write_text(to_yaml(found.topology))
    assert network(str(tmp_path / "net.yaml")).topology == found.topology


# ---- traces ---------------------------------------------------------------------------------------------------------


def series(trace: str, what: str = "rate", folder: Path | None = None, link: str = "east>west") -> Series:
    text = GOOD.replace("delay: 40 ms", f"delay: 40 ms, loss: 1 %, {what}_trace: {trace}")
    found = getattr(links(build_plan(loads(text, folder=folder)))[link], f"{what}_trace")
    assert isinstance(found, Series)
    return found


def test_a_file_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("0 1\n1 2\n3 4\n")
    found = series("{file: p.txt, format: pensieve, scale: 2, speed: 0.5, offset: 1 s}", folder=tmp_path)
    assert (found.times_s, found.values, found.period_s) == ((0.0, 4.0), (8e6, 4e6), 6.0)
    assert found.source == "p.txt (pensieve, scale 2, speed 0.5, offset 1)"
    assert series("{file: p.txt, format: pensieve, loop: false}", folder=tmp_path).period_s == math.inf
    with pytest.raises(ScenarioError, match=r"rate_trace: p\.txt:1: numbers without a header.*'format: pensieve'"):
        series("{file: p.txt}", folder=tmp_path)


@for_each(
    ("trace", "said"),
    [
        ("lte-drvie", "links[0].rate_trace: 'lte-drvie' is not one of"),
        ("{file: a.csv, model: walk}", "a trace has either 'model' or 'file', not both"),
        ("{model: {kind: walk, low: 2, high: 1}}", "rate_trace.model.low: 2 is above high (1) (exchange them)"),
        ("{model: walk, repeat_after: 3 s}", "rate_trace.repeat_after: has no effect beside 'model'"),
        ("{file: a.csv, formt: csv}", "links[0].rate_trace.formt: unknown key (did you mean 'format'?)"),
        ("{file: a.csv, format: cvs}", "links[0].rate_trace.format: 'cvs' is not one of csv"),
        ("{points: step 0.1 values 5}", "a time or value is out of bounds"),
        ("[{at: 0 s, rate: 0.5 kbit/s}]", "0.5 kbit/s is outside [1 kbit/s, 1 Tbit/s]"),
        ("[{at: 0 s, delay: 5 ms}]", "links[0].rate_trace[0].delay: unknown key"),
    ],
)
def test_mistakes_in_traces(trace: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(GOOD.replace("delay: 40 ms", f"delay: 40 ms, rate_trace: {trace}"), "s.yaml", folder=tmp_path)
    assert said in str(caught.value)


def test_a_file_for_the_whole_network(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("time_s,src,dst,rate_mbit_s,rtt_ms\n0,east,west,5,80\n10,east,west,4,90\n")
    text = GOOD.replace("topology:", "topology:\n  traces: n.csv\n  speed: 2")
    found = links(build_plan(loads(text, folder=tmp_path)))
    assert found["east>west"].rate_trace == Series(times_s=(0.0, 5.0), values=(5e6, 4e6), period_s=10.0, source="n.csv")
    assert found["east>west"].delay_trace is not None and found["west>east"].rate_trace is None
    (tmp_path / "n.csv").write_text("time_s,src,dst,rate_mbit_s\n0,east,wets,5\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:.*traces: n\.csv: no link from 'east' to 'wets'"):
        loads(text, "s.yaml", folder=tmp_path)


@for_each(
    ("network", "cure"),
    [
        ("use: hmc4, workers: 2", "(the network comes from 'use': write topology.scale=…"),
        ("generator: {kind: star}", "(the network comes from 'generator': write topology.generator.rate"),
    ],
)
def test_links_that_are_not_written_out_cannot_be_overridden_and_the_cure_is_said(network: str, cure: str) -> None:
    head, _, tail = GOOD.partition("topology:")
    text = f"{head}topology: {{{network}}}\ntraining:{tail.partition('training:')[2]}"
    with pytest.raises(ScenarioError) as caught:
        loads(text, overrides=("links[*].rate=5 Mbit/s",))
    assert "'links[*].rate' matches nothing" in str(caught.value) and cure in str(caught.value)
