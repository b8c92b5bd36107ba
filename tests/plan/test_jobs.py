"""Jobs as neighbours: names and addresses of their own, and one network with its faults and its model."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from emulation.layout import lay_out
from testbed.plan.build import build_jobs, build_plan
from testbed.plan.jobs import plan_of_network
from testbed.plan.model import to_json
from testbed.plan.packets import MOST_PACKETS, packets_of
from testbed.scenario.jobs import load_jobs
from testbed.scenario.load import load
from tests.scenario.test_jobs import HEAD, NETWORK, OWN, read

PLACED = "{scenario: quickstart, start: 4 s, topology: {sites: [tokyo, paris], central: paris}}"
DOWN = "faults: [{kind: down, link: 'virginia<>tokyo', at: 5 s, for: 2 s}]\n"


def test_the_plan_of_a_job_without_others_is_that_of_its_scenario(tmp_path: Path) -> None:
    text = "version: 1\nname: one\nseed: 1\njobs: {quickstart: {scenario: quickstart}}\n"
    for back_end in ("simulate", "emulate", "exact"):
        jobs, shared = build_jobs(read(tmp_path, text, on=back_end))
        assert to_json(jobs[0].plan) == to_json(build_plan(load("quickstart"), back_end))
        assert plan_of_network(jobs, shared.network) is jobs[0].plan


def test_nodes_of_several_jobs_have_names_and_addresses_of_their_own_on_the_network(tmp_path: Path) -> None:
    jobs, shared = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {OWN}, b: {PLACED}}}\n", on="emulate"))
    plan = plan_of_network(jobs, shared.network)
    names = [node.name for node in plan.nodes]
    assert "tokyo/worker0" in names
    assert "tokyo/b.worker0" in names
    assert len(set(names)) == len(names) == sum(len(job.plan.nodes) for job in jobs)
    assert {job.host(node.name) for job in jobs for node in job.plan.nodes} == set(names)
    assert all(set(node.parents + node.children) <= set(names) for node in plan.nodes)
    addresses = [node.address for node in plan.nodes]
    assert addresses == [node.address for job in jobs for node in job.plan.nodes]
    assert len(set(addresses)) == len(addresses)
    subnets = {site.name: ipaddress.ip_network(str(site.subnet)) for site in shared.network.sites}
    assert all(ipaddress.ip_address(str(node.address)) in subnets[node.data_center] for node in plan.nodes)
    layout = lay_out(plan, wires=True)
    assert set(layout.hosts) == set(names)
    assert len(layout.wan) == len(shared.network.links)


def test_faults_of_links_are_in_the_links_of_all_jobs_and_among_the_faults_of_those_that_begin_with_them(
    tmp_path: Path,
) -> None:
    jobs, shared = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}{DOWN}jobs: {{a: {OWN}, b: {PLACED}}}\n"))
    a, b = (job.plan for job in jobs)
    assert a.network.links == b.network.links == shared.network.links
    assert sum(link.state_trace is not None for link in shared.network.links) == 2
    assert [fault.kind for fault in a.faults] == ["down"]
    assert b.faults == ()  # it starts later: their times do not count from its start


def test_jobs_have_one_model_of_the_network_by_the_packets_of_all(tmp_path: Path) -> None:
    few = f"{HEAD}{NETWORK}jobs: {{a: {OWN}, b: {OWN}}}\n"
    jobs, _ = build_jobs(read(tmp_path, few))
    assert [job.plan.simulation.network for job in jobs] == ["packets", "packets"]
    many = f"{OWN[:-1]}, timeouts: {{run_deadline: 8000 h}}}}".replace("rounds: 3", "rounds: 900000")
    jobs, _ = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {OWN}, b: {many}}}\n"))
    assert [job.plan.simulation.network for job in jobs] == ["flows", "flows"]
    assert "packets of 2 jobs are predicted" in jobs[0].plan.simulation.network_reason


def test_packets_of_all_jobs_count_together(tmp_path: Path) -> None:
    (job,), _ = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {OWN}}}\n"))
    each_round = packets_of(job.plan) / job.plan.training.rounds
    rounds = int(0.6 * MOST_PACKETS / each_round)
    most = f"{OWN[:-1]}, timeouts: {{run_deadline: 8000 h}}}}".replace("rounds: 3", f"rounds: {rounds}")
    alone, _ = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {most}}}\n"))
    assert [job.plan.simulation.network for job in alone] == ["packets"]
    both, _ = build_jobs(read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {most}, b: {most}}}\n"))
    assert [job.plan.simulation.network for job in both] == ["flows", "flows"]


def test_what_is_random_in_the_network_is_of_the_seed_of_the_file(tmp_path: Path) -> None:
    network = NETWORK.replace("delay: 50 ms", "delay: 50 ms, rate_trace: {model: {kind: walk, low: 0.6, high: 1.2}}")
    own = f"{OWN[:-1]}, seed: 7}}"
    jobs, shared = build_jobs(read(tmp_path, f"{HEAD}{network}jobs: {{a: {own}, b: {OWN}}}\n"))
    assert jobs[0].plan.seed == 7
    assert jobs[0].plan.network.links == jobs[1].plan.network.links == shared.network.links
    alone, _ = build_jobs(read(tmp_path, f"{HEAD}{network}jobs: {{b: {OWN}}}\n"))
    assert alone[0].plan.network.links == shared.network.links


def test_the_shipped_jobs_can_be_planned_everywhere() -> None:
    for back_end in ("simulate", "local", "emulate", "exact"):
        jobs, _ = build_jobs(load_jobs("shared/two-jobs", on=back_end))
        assert [job.name for job in jobs] == ["star", "ring"]
