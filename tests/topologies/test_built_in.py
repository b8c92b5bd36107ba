"""Every built-in topology: its numbers against the published ones, a Plan of it, and two rounds simulated over it."""

from __future__ import annotations

import csv

import networkx as nx
import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import LinkPlan, Plan
from testbed.scenario import loads
from testbed.scenario.look_up import network
from tests.for_each import for_each
from tests.topologies.made import netstorm_rates
from topologies.graph import data_centers
from topologies.library import BUILT_IN, DATA

TEXT = """\
version: 1
name: over
seed: 3
run: {on: simulate}
topology: {use: NAME, scale: 10, workers: 1}
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 2, evaluate_every: 2}
"""


def plan_of(name: str, *overrides: str) -> Plan:
    return build_plan(loads(TEXT.replace("NAME", name), overrides=overrides))


def links(name: str, *overrides: str) -> dict[str, LinkPlan]:
    return {link.name: link for link in plan_of(name, "topology.scale=1", *overrides).network.links}


@for_each("name", BUILT_IN)
def test_it_is_connected_and_every_pair_has_a_path(name: str) -> None:
    found, plan = network(name), plan_of(name)
    assert nx.is_strongly_connected(found.graph)
    sites = data_centers(found.graph)
    assert set(plan.network.routes) == {f"{a}>{b}" for a in sites for b in sites if a != b}
    known = {link.name for link in plan.network.links}
    assert all(set(path) <= known for path in plan.network.routes.values())


def test_hmc4_is_the_published_table() -> None:
    found = links("hmc4")
    published = {
        ("us", "eu"): (210, 103.1),
        ("us", "asia"): (130, 157.1),
        ("us", "aus"): (120, 176.1),
        ("eu", "asia"): (80, 253.1),
        ("eu", "aus"): (70, 272.05),
        ("asia", "aus"): (160, 131.4),
    }
    assert len(found) == 2 * len(published)
    for (a, b), (mbit, round_trip_ms) in published.items():
        for link in (found[f"{a}>{b}"], found[f"{b}>{a}"]):
            assert (link.rate_bps, link.delay_s) == (mbit * 1e6, pytest.approx(round_trip_ms / 2000))


@for_each(("pair", "ms", "mbit"), [("or>va", 67, 790), ("jp>kr", 34, 1100), ("ie>de", 24, 1080)])
def test_dtfm10_has_half_of_the_ping_in_each_direction(pair: str, ms: float, mbit: float) -> None:
    link = links("dtfm10")[pair]
    assert (link.rate_bps, link.delay_s) == (mbit * 1e6, pytest.approx(ms / 2000))


def test_aws11_follows_the_window_law() -> None:
    """One stream carries 2.6 MB in a round trip; the law is within 10 % of all pairs that were measured."""
    found = links("aws11")
    assert len(found) == 11 * 10
    for link in found.values():
        law = min(5e9, 2.6e6 * 8 / (2 * link.delay_s))
        assert link.rate_bps == pytest.approx(law, abs=0.06e6)
    assert found["sg>br"].delay_s == 0.179 and found["ca>or"].delay_s == 0.0105
    for link in links("hmc4").values():
        assert 2.6e6 * 8 / (2 * link.delay_s) == pytest.approx(link.rate_bps, rel=0.1)


@for_each(("name", "share"), [("gaia-15x", 15), ("gaia-60x", 60)])
def test_gaias_ratio_of_lan_to_wan(name: str, share: float) -> None:
    plan = plan_of(name, "topology.scale=1")
    lan = plan.network.sites[0].lan_rate_bps
    assert {round(lan / link.rate_bps, 3) for link in plan.network.links} == {share}


def test_simblock6_is_asymmetric() -> None:
    found = links("simblock6")
    assert (found["na>na-isp"].rate_bps, found["na-isp>na"].rate_bps) == (19.2e6, 52e6)
    assert (found["sa>sa-isp"].rate_bps, found["sa-isp>sa"].rate_bps) == (5.8e6, 18e6)
    assert found["eu-isp>jp-isp"].rate_bps == 6e6 and found["eu-isp>jp-isp"].delay_s == 0.252
    route = plan_of("simblock6").network.routes["na>au"]
    assert route == ("na>na-isp", "na-isp>au-isp", "au-isp>au")


def test_netstorm9_is_redrawn_by_our_generator() -> None:
    plan = plan_of("netstorm9", "topology.scale=1")
    assert len(plan.network.links) == 26
    ends = [(link.source, link.target) for link in plan.network.links]
    text = (DATA / "netstorm9.csv").read_text()
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    assert [(row["src"], row["dst"]) for row in rows[:26]] == ends or {(r["src"], r["dst"]) for r in rows} == set(ends)
    assert netstorm_rates(list(dict.fromkeys((row["src"], row["dst"]) for row in rows))) == text
    draws = [float(row["rate_mbit_s"]) for row in rows]
    assert (min(draws), max(draws)) == (20, 155) and abs(sum(draws) / len(draws) - 87.5) < 4
    series = plan.network.links[0].rate_trace
    assert series is not None and series.period_s == 7200 and series.times_s[:3] == (0, 180, 360)


def test_scale_divides_rates_and_keeps_ratios() -> None:
    whole, tenth = plan_of("hmc4", "topology.scale=1"), plan_of("hmc4")
    for before, after in zip(whole.network.links, tenth.network.links, strict=True):
        assert after.rate_bps == before.rate_bps / 10 and after.delay_s == before.delay_s
    assert tenth.network.sites[0].lan_rate_bps == 680e6
    assert any("a model here stands for one of 10 times its bytes" in warning for warning in tenth.warnings)
    traced = (
        plan_of("netstorm9").network.links[0].rate_trace,
        plan_of("netstorm9", "topology.scale=1").network.links[0].rate_trace,
    )
    assert traced[0] is not None and traced[1] is not None
    assert traced[0].values == tuple(value / 10 for value in traced[1].values)
