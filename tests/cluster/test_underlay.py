"""Emulation on several machines: who is where, and what the machines' own network has to carry. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.benchmarks.sample_plans import plan as network_of
from testbed.cli.main import main
from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import machines_of, place
from testbed.cluster.underlay import UnderlayPath, crossing, mtu_bytes, mtu_warning, refuse_uncarried
from testbed.errors import CapabilityError, NetworkMismatch, ScenarioError
from testbed.execution.sweep import SweepJob, execute
from testbed.execution.sweep_points import points_of
from testbed.plan.model import Plan, Series
from testbed.scenario.sweep import from_options
from tests.cluster.emulated_cases import plan_of
from tests.end_to_end.runs import QUICKSTART

FAST = UnderlayPath(rtt_s=0.0004, rate_bps=10e9, mtu_bytes=9000)


def machines(count: int, cores: float = 2.0) -> list[ClusterMachine]:
    return [ClusterMachine(f"id{number}", f"10.0.0.{number}", cores=cores) for number in range(count)]


def placed(plan: Plan, found: list[ClusterMachine]) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.name, each.data_centers) for each in place(plan, dict.fromkeys(plan.cluster.data_centers, found))]


def test_data_centers_are_whole_and_nodes_balanced() -> None:
    plan = plan_of()
    assert placed(plan, machines(2)) == [("machine0", ("virginia",)), ("machine1", ("frankfurt", "tokyo"))]
    assert [sites for _, sites in placed(plan, machines(5))] == [("virginia",), ("frankfurt",), ("tokyo",)]
    placements = place(plan, dict.fromkeys(plan.cluster.data_centers, machines(2)))
    assert Counter(node for each in placements for node in each.ports) == Counter(node.name for node in plan.nodes)
    assert placements[1].ports["tokyo/worker0"] == plan.node("tokyo/worker0").port


def test_a_machine_with_more_cores_gets_more_nodes() -> None:
    large, small = ClusterMachine("large", "10.0.0.1", cores=8.0), ClusterMachine("small", "10.0.0.2", cores=1.0)
    assert placed(plan_of(), [small, large]) == [("machine0", ("virginia", "frankfurt", "tokyo"))]


def test_a_label_and_a_number_choose_machines() -> None:
    plan = plan_of("cluster.machines=2", "cluster.data_centers={tokyo: {label: rack=3}}")
    assert plan.cluster.data_centers["tokyo"].label == "rack=3" and plan.cluster.data_centers["virginia"].label == ""
    four = machines(4)
    found = dict.fromkeys(plan.cluster.data_centers, four) | {"tokyo": four[3:]}
    placements = place(plan, found)
    assert {each.machine.id for each in placements} == {"id0", "id3"}
    assert next(each for each in placements if "tokyo" in each.data_centers).machine.id == "id3"


def test_too_few_machines_are_refused_with_a_cure() -> None:
    plan = plan_of("cluster.machines=3")
    with pytest.raises(CapabilityError, match=r"cluster\.machines: 3 are wanted, 2 have a slot 'emulate'.*start Ray"):
        placed(plan, machines(2))
    with pytest.raises(
        CapabilityError, match=r"data_centers\.virginia: no machine .* slot 'emulate'; cure: `ray start"
    ):
        placed(plan_of(), [])


def test_two_nodes_of_ray_on_one_machine_are_one() -> None:
    twins = [ClusterMachine("id0", "10.0.0.1", cores=2.0), ClusterMachine("id1", "10.0.0.1", cores=2.0)]
    assert placed(plan_of(), twins) == [("machine0", ("virginia", "frankfurt", "tokyo"))]


def test_routers_are_beside_most_of_their_neighbours() -> None:
    pairs = {("dc0", "r0"): {}, ("dc1", "r0"): {}, ("r0", "r1"): {}, ("r1", "dc2"): {}}
    network = network_of(pairs, sites=3, routers=("r0", "r1"), routes={}).network
    placements = place(plan_of(), dict.fromkeys(("virginia", "frankfurt", "tokyo"), machines(2)))
    placements = tuple(
        replace(each, data_centers=sites) for each, sites in zip(placements, [("dc0", "dc1"), ("dc2",)], strict=True)
    )
    found = machines_of(network, placements)
    assert found == {"dc0": "machine0", "dc1": "machine0", "dc2": "machine1", "r0": "machine0", "r1": "machine0"}


MACHINES = {"virginia": "a", "frankfurt": "b", "tokyo": "b"}
PAIRS = (("a", "b"), ("b", "a"))


def refusal(plan: Plan, **changes: float) -> str:
    with pytest.raises(NetworkMismatch) as caught:
        refuse_uncarried(plan, MACHINES, {PAIRS[0]: replace(FAST, **changes), PAIRS[1]: FAST})
    return str(caught.value)


def test_a_network_that_can_carry_all_is_not_refused() -> None:
    refuse_uncarried(plan_of(), MACHINES, dict.fromkeys(PAIRS, FAST))
    assert {pair: len(links) for pair, links in crossing(plan_of(), MACHINES).items()} == dict.fromkeys(PAIRS, 2)


def test_datagrams_that_do_not_fit_are_refused_before_the_run() -> None:
    """And not by the first of them, when the network is up and training has begun."""
    assert "MTU of 1450; use another order, or a larger MTU" in refusal(plan_of("order=dgt"), mtu_bytes=1500)
    refuse_uncarried(plan_of(), MACHINES, dict.fromkeys(PAIRS, replace(FAST, mtu_bytes=1500)))
    refuse_uncarried(plan_of("order=dgt"), MACHINES, dict.fromkeys(PAIRS, FAST))


def test_a_link_faster_than_the_machines_network_is_refused() -> None:
    text = refusal(plan_of(), rate_bps=20.2e6)  # enough without the tunnel's headers
    assert "link virginia>frankfurt: needs 20.66 Mbit/s with tunnel headers, and from a to b there are 20.2" in text
    assert "put both on one machine (cluster.data_centers.NAME.label" in text


def test_links_that_are_too_fast_together_are_refused() -> None:
    text = refusal(plan_of(), rate_bps=41e6)
    assert text.splitlines()[1:] == [
        "  links from a to b: together need 41.32 Mbit/s with tunnel headers, and there are 41 Mbit/s; use fewer "
        "machines, place data centres otherwise, or write lower rates",
        "  links that leave a: together need 41.32 Mbit/s with tunnel headers, and there are 41 Mbit/s; use fewer "
        "machines, place data centres otherwise, or write lower rates",
        "  links that reach b: together need 41.32 Mbit/s with tunnel headers, and there are 41 Mbit/s; use fewer "
        "machines, place data centres otherwise, or write lower rates",
    ]


def test_links_that_carry_nothing_do_not_count_together() -> None:
    """Between frankfurt and tokyo nothing is pushed: with frankfurt alone on a, one link of the two is used."""
    machines = {"virginia": "b", "frankfurt": "a", "tokyo": "b"}
    slow = replace(FAST, rate_bps=21e6)
    refuse_uncarried(plan_of(), machines, dict.fromkeys(PAIRS, slow))
    with pytest.raises(NetworkMismatch, match="links from a to b: together need"):
        refuse_uncarried(plan_of("overlay=tsengine"), machines, dict.fromkeys(PAIRS, slow))


def test_a_link_shorter_than_the_machines_network_is_refused() -> None:
    text = refusal(plan_of(), rtt_s=0.2)
    assert "link virginia>frankfurt: has a delay of 4" in text and "it takes 100 ms from a to b" in text


def test_a_trace_counts_with_its_extremes() -> None:
    plan = plan_of()
    series = Series(times_s=(0.0, 1.0), values=(20e6, 900e6), period_s=2.0)
    links = tuple(
        replace(link, rate_trace=series) if link.name == "virginia>tokyo" else link for link in plan.network.links
    )
    traced = replace(plan, network=replace(plan.network, links=links))
    refuse_uncarried(plan, MACHINES, dict.fromkeys(PAIRS, replace(FAST, rate_bps=500e6)))
    assert "link virginia>tokyo: needs 929.7 Mbit/s" in refusal(traced, rate_bps=500e6)


def test_the_mtu_of_the_least_path_counts_and_is_told() -> None:
    assert mtu_bytes([FAST]) == 1500 and mtu_warning(1500) == ""
    assert mtu_bytes([FAST, replace(FAST, mtu_bytes=1460)]) == 1410
    assert "carries no packets of 1550 bytes" in mtu_warning(1410) and "an MTU of 1410 instead of 1500" in mtu_warning(
        1410
    )
    with pytest.raises(NetworkMismatch, match="packets of 600 bytes; tunnels need 626"):
        mtu_bytes([replace(FAST, mtu_bytes=600)])


def test_the_commands_option_is_for_back_ends_with_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", str(QUICKSTART), "--cluster", "10.0.0.1", "--out", str(tmp_path / "run")]
    assert main([*words, "--on", "simulate"]) == 2
    assert (
        "--cluster: 'simulate' runs on this machine alone; add --on emulate or --on cluster" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_points_of_a_sweep_over_a_cluster_take_one_machine_each(tmp_path: Path) -> None:
    settings = from_options(["cluster.emulate=true"], [], 1)
    points = points_of(QUICKSTART, settings, "emulate")
    job = SweepJob(tmp_path, QUICKSTART, settings, points, cluster="10.0.0.1:6379")
    with pytest.raises(ScenarioError, match="a point takes one machine, and this scenario takes several"):
        execute(job, lambda point, state: None)


def test_settings_of_deployments_that_emulation_ignores_are_told() -> None:
    plan = plan_of("cluster.data_centers={tokyo: {ports: 20000-20099, label: rack=3}}")
    assert [line for line in plan.warnings if "cluster" in line] == [
        "cluster.data_centers.tokyo.ports: has no effect on 'emulate'"
    ]
