"""Several jobs on one simulated network: alone, each is what it always was; together they share links, and no more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.roles import make_role
from testbed.errors import NodeLost, RunFailed
from testbed.execution.torch_settings import settings_of_a_run
from testbed.plan.build import build_jobs
from testbed.plan.jobs import Job, SharedNetwork
from testbed.plan.model import Plan
from testbed.plan.packets import packets_of, predicted_packets
from testbed.plan.sharing import sharing
from testbed.results.events import read
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.run import Exits, JobRun, Simulation, simulate, simulate_jobs
from tests.for_each import for_each
from tests.plan.test_jobs import DOWN
from tests.scenario.test_jobs import HEAD, NETWORK, OWN
from tests.scenario.test_jobs import read as read_jobs

Event = dict[str, Any]
NETWORKS = ("packets", "flows", "ideal")


def plan_of(tmp_path: Path, network: str, *overrides: str, rate: str = "20 Mbit/s") -> Plan:
    """A small job on three data centres, whose links have a fault. ``overrides``: of the job."""
    changes = (
        f"simulation.network={network}",
        f"links[*].rate={rate}",
        *(f"jobs.a.{override}" for override in overrides),
    )
    jobs, _ = build_jobs(read_jobs(tmp_path, f"{HEAD}{NETWORK}{DOWN}jobs: {{a: {OWN}}}\n", *changes))
    return jobs[0].plan


def run(directory: Path, *jobs: Job) -> list[list[Event]]:
    """Simulate jobs together on the network of the last one. Return the events of each."""
    network = jobs[-1].plan.network
    together = sharing(jobs, SharedNetwork(network=network, faults=jobs[0].plan.faults))
    runs = [
        JobRun(
            job=job,
            make_role=partial(make_role, files=None),
            directory=directory / (job.name or "only"),
            on_progress=lambda event: None,
        )
        for job in together
    ]
    with settings_of_a_run():
        ends = simulate_jobs(runs, network)
    errors = [end.error for exits in ends for end in exits.values() if end.error is not None]
    if errors:
        raise errors[0]
    return [list(read(each.directory / "events")) for each in runs]


def rounds_s(events: list[Event]) -> list[float]:
    return [event["t"] for event in events if event["kind"] == "round" and event["node"] == "virginia/worker0"]


@for_each("network", NETWORKS)
def test_a_job_without_others_keeps_its_bits_and_times(network: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, network)
    with settings_of_a_run():
        simulate(plan, partial(make_role, files=None), tmp_path / "alone", lambda event: None)
    (events,) = run(tmp_path, Job(plan=plan, name="a"))
    assert events == list(read(tmp_path / "alone" / "events"))
    assert len(rounds_s(events)) == plan.training.rounds


def test_jobs_that_meet_on_no_link_keep_their_times_and_on_one_they_take_longer(tmp_path: Path) -> None:
    place = "topology={sites: [virginia, tokyo], workers: 1}"
    other = "topology={sites: [virginia, paris], workers: 1}"
    alone, elsewhere = (plan_of(tmp_path, "ideal", each) for each in (place, other))
    everywhere = plan_of(tmp_path, "ideal").network
    elsewhere = replace(elsewhere, network=replace(elsewhere.network, sites=everywhere.sites, routes=everywhere.routes))
    (by_itself,) = run(tmp_path / "1", Job(plan=alone, name="a"))
    apart, _ = run(tmp_path / "2", Job(plan=alone, name="a"), Job(plan=elsewhere, name="b"))
    assert rounds_s(apart) == rounds_s(by_itself)
    shared, second = run(tmp_path / "3", Job(plan=alone, name="a"), Job(plan=alone, name="b"))
    assert rounds_s(shared) == pytest.approx(rounds_s(second))  # equal jobs share links equally
    finals = [
        {event.get("parameters_sha256") for event in each if event["kind"] == "final"} for each in (shared, by_itself)
    ]
    assert finals[0] == finals[1]  # the mathematics does not know of others
    size_bytes = max(
        event["payload_bytes"] for event in by_itself if event["kind"] == "transfer" and event["tier"] == "wan"
    )
    link = next(link for link in alone.network.links if link.name == "virginia>tokyo")
    longer_s = rounds_s(shared)[-1] - rounds_s(shared)[-2] - (rounds_s(by_itself)[-1] - rounds_s(by_itself)[-2])
    assert longer_s > 2 * 0.5 * 8 * size_bytes / link.rate_bps  # a large tensor, up and down, at half of the rate


def test_a_job_starts_when_its_time_has_come_and_its_log_begins_then(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "packets", "training.rounds=40")
    now, later = run(tmp_path, Job(plan=plan, name="a"), Job(plan=plan, name="b", start_s=30.0))
    begun_s = min(event["t"] for event in later)
    assert begun_s == 30.0
    assert max(event["t"] for event in now if event["kind"] == "link") < 30.0  # nor is another job's time in its log
    assert len([event for event in now if event["kind"] == "replay"]) >= 4  # links are down, and up again
    assert not [event for event in later if event["kind"] == "replay"]  # and traces do not begin a second time
    moved = [round(t - 30.0, 6) for t in rounds_s(later)]
    without_fault = plan_of(tmp_path, "packets", "training.rounds=40")
    (early,) = run(tmp_path / "early", Job(plan=replace(without_fault, faults=()), name="a"))
    assert moved[0] == pytest.approx(rounds_s(early)[0], rel=0.2)  # with no fault of links, which was before


def failing(tmp_path: Path, first: Plan, second: Plan, start_s: float = 0.0) -> list[Exits]:
    """Simulate two jobs on the network of the second, of which one may fail. Return how their nodes ended."""
    shared = SharedNetwork(network=second.network, faults=second.faults)
    jobs = sharing([Job(plan=first, name="a"), Job(plan=second, name="b", start_s=start_s)], shared)
    runs = [
        JobRun(job=job, make_role=partial(make_role, files=None), directory=tmp_path / job.name, on_progress=_ignore)
        for job in jobs
    ]
    with settings_of_a_run():
        return simulate_jobs(runs, second.network)


def test_a_job_that_fails_leaves_the_network_to_the_other(tmp_path: Path) -> None:
    place = "topology={sites: [virginia, tokyo], workers: 1}"
    on_one_link = plan_of(tmp_path, "packets", place, "training.rounds=12", rate="2 Mbit/s")
    everywhere = plan_of(tmp_path, "packets", "training.model={kind: mlp, hidden: 2048}", rate="2 Mbit/s")
    broken = replace(everywhere, timeouts=replace(everywhere.timeouts, step_deadline_s=1.5))
    good, bad = failing(tmp_path, on_one_link, broken)
    assert not [end.error for end in good.values() if end.error is not None]
    assert len(bad) == len(broken.nodes)
    assert any(isinstance(end.error, RunFailed) for end in bad.values())
    last_s = max(end.at_s for end in bad.values())
    assert last_s + 1.5 < max(end.at_s for end in good.values())
    assert max(event["t"] for event in read(tmp_path / "b" / "events")) <= last_s + 1e-6
    samples = [event for event in read(tmp_path / "a" / "events") if event["kind"] == "link"]
    carried = [event["bytes"] for event in samples if event["link"] == "virginia>paris" and event["t"] > last_s + 0.5]
    assert carried[0] > 100_000
    assert carried[-1] == carried[0]  # nothing of what it was sending is sent any more


def test_links_go_down_for_a_later_job_when_they_do_for_the_first_one(tmp_path: Path) -> None:
    down = DOWN.replace("at: 5 s, for: 2 s", "at: 40 s, for: 900 s")
    jobs, _ = build_jobs(read_jobs(tmp_path, f"{HEAD}{NETWORK}{down}jobs: {{a: {OWN}}}\n", "simulation.network=flows"))
    plan = jobs[0].plan
    longer = replace(plan, training=replace(plan.training, rounds=400))
    good, bad = failing(tmp_path, plan, longer, start_s=30.0)
    assert not [end.error for end in good.values() if end.error is not None]
    lost = [end for end in bad.values() if isinstance(end.error, NodeLost)]
    begun_s = min(event["t"] for event in read(tmp_path / "a" / "events") if event["kind"] == "train")
    assert {round(end.at_s, 3) for end in lost} == {round(begun_s + 40 + plan.timeouts.dead_after_s, 3)}


def _ignore(event: Event) -> None: ...


def test_progress_of_a_job_has_its_own_times_from_its_start_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.simulation.run._REPORT_INTERVAL_S", 0.0)
    monkeypatch.setattr("testbed.simulation.run._BATCH_EVENTS", 10)
    plan = plan_of(tmp_path, "ideal")
    longer = plan_of(tmp_path, "ideal", "training.rounds=9")
    jobs = (Job(plan=plan, name="first"), Job(plan=longer, name="late", start_s=0.25))
    told: dict[str, list[Event]] = {"first": [], "late": []}
    runs = [
        JobRun(
            job=job,
            make_role=partial(make_role, files=None),
            directory=tmp_path / job.name,
            on_progress=told[job.name].append,
        )
        for job in sharing(jobs, SharedNetwork(network=plan.network))
    ]
    with settings_of_a_run():
        first, late = simulate_jobs(runs, plan.network)
    assert max(end.at_s for end in late.values()) > (end_s := max(end.at_s for end in first.values()))
    times_s = [event["t"] for event in told["first"] if "t" in event]
    assert max(times_s) <= end_s
    assert times_s == sorted(times_s)
    starts = [event["t"] for event in told["late"] if event["kind"] == "stage"]
    assert starts == [0.25]
    assert [event["t"] for event in told["first"] if event["kind"] == "ended"] == [end_s]


def test_packets_are_expected_of_all_jobs_and_of_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[int] = []
    monkeypatch.setattr(PacketEngine, "expect", lambda engine, packets: expected.append(packets))
    plan = plan_of(tmp_path, "packets", "paradigm={kind: pipeline, stages: 2, micro_batches: 2}")
    runs = [
        JobRun(
            job=Job(plan=plan, name=name), make_role=make_role, directory=tmp_path / name, on_progress=lambda _: None
        )
        for name in ("one", "other")
    ]
    Simulation(runs, plan.network).close()
    assert expected == [2 * packets_of(plan)]
    assert packets_of(plan) > predicted_packets(plan.network, plan.nodes, plan.training)
