"""A trace that is played takes the time that follows from its nodes: in virtual time, by closed forms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.topology import ranks_of, segments_of
from testbed.engine.membership import TRAIN
from testbed.engine.scheduler import Scheduler
from testbed.engine.session import Session
from testbed.engine.trace.collectives import TraceCollectives
from testbed.engine.trace.player import Player
from testbed.engine.trace.roles import trace_worker
from testbed.errors import ScenarioError
from testbed.job_trace.model import (
    ALL_GATHER,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    TraceNode,
)
from testbed.job_trace.reading import read_rank
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan, from_json, to_json
from testbed.policy.collective import ALL_REDUCE
from testbed.scenario.load import load, loads
from testbed.simulation.run import simulate
from testbed.training.declared import declared_shape
from testbed.world import Role, World
from tests.engine.runs import MODELLED, Simulated, run
from tests.for_each import for_each
from tests.job_trace.made import collective, compute, memory, receive, send, written

MakeBody = Callable[[World, NodePlan, CollectiveMail], Any]
RATE_BPS = 80e6
DELAY_S = 0.02
LINK = f"{{between: [tokyo, virginia], rate: {RATE_BPS / 1e6:g} Mbit/s, delay: {DELAY_S:g} s}}"
SCENARIO = f"""
version: 1
name: traced
seed: 1
run: {{on: simulate}}
topology:
  data_centers:
    - {{name: tokyo, workers: WORKERS, central: true}}
    - {{name: virginia, workers: WORKERS}}
  links: [{LINK}]
  lan: {{rate: 10 Gbit/s, delay: 0 ms}}
simulation: {{network: ideal}}
workload: {{trace: job}}
"""


@dataclass(frozen=True)
class Played:
    """A run of a trace, and how long each rank's rounds took."""

    run: Simulated
    workers: tuple[str, ...]

    def round_s(self, rank: int, round_: int = 0) -> float:
        found = [event for event in self.run.of_kind("round", self.workers[rank]) if event["round"] == round_]
        return float(found[0]["t"] - found[0]["t0"])


def scenario(folder: Path, workers: int = 1) -> Path:
    path = folder / "s.yaml"
    path.write_text(SCENARIO.replace("WORKERS", str(workers)))
    return path


def play(folder: Path, *ranks: list[TraceNode], workers: int = 1, **more: object) -> Played:
    """Simulate a job whose messages take bytes/rate and the delay. ``more``: settings, by path with '__' for dots."""
    written(folder, *ranks)
    settings = [f"{path.replace('__', '.')}={value}" for path, value in more.items()]
    found = run(folder, "simulation.network=ideal", *settings, scenario=scenario(folder, workers))
    assert found.plan.traced is not None
    return Played(found, found.plan.traced.ranks)


def on_link_s(size_bytes: int) -> float:
    return size_bytes * 8 / RATE_BPS


def test_computations_take_turns(tmp_path: Path) -> None:
    played = play(tmp_path, [compute(1, 0.3), compute(2, 0.2), compute(3, 0.1, 1, 2)], [compute(1, 0.5)])
    assert math.isclose(played.round_s(0), 0.6, abs_tol=1e-6)
    assert math.isclose(played.round_s(1), 0.5, abs_tol=1e-6)


def test_the_host_computes_beside_the_accelerator(tmp_path: Path) -> None:
    host = [compute(1, 0.3, on_host=True), compute(2, 0.2), compute(3, 0.1, 1, 2)]
    without_accelerator = [compute(1, 0.3, on_host=True), compute(2, 0.2, on_host=True)]
    played = play(tmp_path, host, without_accelerator)
    assert math.isclose(played.round_s(0), 0.4, abs_tol=1e-6)
    assert math.isclose(played.round_s(1), 0.5, abs_tol=1e-6)


def test_a_slow_device_takes_longer_for_what_the_trace_states(tmp_path: Path) -> None:
    played = play(tmp_path, [compute(1, 0.3)], [compute(1, 0.3)], device__speed="0.5")
    assert math.isclose(played.round_s(0), 0.6, abs_tol=1e-6)


def test_durations_follow_from_the_device_where_none_is_stated(tmp_path: Path) -> None:
    nodes = [compute(1, 0.0, operations=2e9), memory(2, 1_000_000, 1)]
    rates = {"workload__flops": "1e10", "workload__memory_rate": "80 Mbit/s"}
    played = play(tmp_path, nodes, nodes, **rates)
    assert math.isclose(played.round_s(0), 0.2 + 0.1, abs_tol=1e-6)


def test_a_receiver_waits_for_the_message_and_a_sender_does_not(tmp_path: Path) -> None:
    first = [compute(1, 0.1), send(2, 1, 1_000_000, 1), compute(3, 0.05, 2)]
    played = play(tmp_path, first, [receive(1, 0, 1_000_000), compute(2, 0.2, 1)])
    assert math.isclose(played.round_s(0), 0.15, abs_tol=1e-3)
    expected_s = 0.1 + on_link_s(1_000_000) + 0.2  # it begins after a delay, as the scheduler is with the other
    assert math.isclose(played.round_s(1), expected_s, rel_tol=5e-3)


def test_messages_of_a_tag_keep_their_order_and_others_do_not_wait(tmp_path: Path) -> None:
    """The long message of tag 0 is awaited last, and computing goes on when that of tag 1 is there."""
    first = [send(1, 1, 1_000_000), send(2, 1, 1000, tag=1)]
    second = [receive(2, 0, 1000, tag=1), compute(3, 0.5, 2), receive(1, 0, 1_000_000, 3)]
    played = play(tmp_path, first, second)
    assert math.isclose(played.round_s(1), on_link_s(1_001_000) + 0.5, rel_tol=5e-3)


def test_rounds_play_the_trace_again(tmp_path: Path) -> None:
    ranks = [compute(1, 0.1), send(2, 1, 8000, 1)], [receive(1, 0, 8000), compute(2, 0.05, 1), compute(3, 0.05, 2)]
    played = play(tmp_path, *ranks, training__rounds=3)
    assert len(played.run.of_kind("round", played.workers[0])) == 3
    ends = [event["t"] for event in played.run.of_kind("round", played.workers[1])]
    assert math.isclose(ends[2] - ends[1], 0.1, abs_tol=1e-3)  # the sender does not wait, so messages are there


def test_ranks_are_played_where_the_placement_says(tmp_path: Path) -> None:
    nodes = [[compute(1, 0.1 * rank)] for rank in range(4)]
    played = play(tmp_path, *nodes, workers=2, workload__placement="{virginia: [0, 3], tokyo: [2, 1]}")
    assert played.workers == ("virginia/worker0", "tokyo/worker1", "tokyo/worker0", "virginia/worker1")
    assert [played.round_s(rank) for rank in range(4)] == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=1e-6)


def elapsed_s(
    plan: Plan, folder: Path, make_body: Callable[[World, NodePlan, CollectiveMail], Any]
) -> dict[str, float]:
    """Return how long each worker takes for what ``make_body`` returns, begun together, on the Plan's network."""
    found: dict[str, float] = {}

    def make_role(plan: Plan, node: NodePlan) -> Role:
        if node.role == "scheduler":
            return Scheduler(plan, None)

        async def role(world: World) -> None:
            session = Session(plan, node, world)
            mail = CollectiveMail(world, session.inbox)
            await session.join()
            await session.membership.barrier(TRAIN, len(plan.training_workers))
            began_s = world.now()
            await make_body(world, node, mail)
            found[node.name] = world.now() - began_s
            await session.finish()

        return role

    exits = simulate(plan, make_role, folder, lambda event: None)
    assert not [end.error for end in exits.values() if end.error is not None]
    return found


def times_of(folder: Path, algorithm: str, node: TraceNode, sites: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the times of an operation as a trace has it, and of the engine's own of the same size."""
    written(folder, *[[node]] * 2 * sites)
    settings = (f"paradigm={{kind: allreduce, algorithm: {algorithm}}}", "simulation.network=ideal")
    plan = build_plan(load(scenario(folder, sites), settings), "simulate")
    assert plan.traced is not None
    traced = plan.traced

    def trace(world: World, worker: NodePlan, mail: CollectiveMail) -> Any:
        ranks = read_rank(traced.trace, traced.ranks.index(worker.name))
        collectives = TraceCollectives(plan, worker, world, mail, {})
        return Player(plan, worker, world, mail, ranks, collectives).play(0)

    def engine(world: World, worker: NodePlan, mail: CollectiveMail) -> Any:
        ranks = ranks_of(plan)
        elements = node.size_bytes // 4
        shape = ranks.shape(segments_of(plan, ranks, elements))
        group = Collectives(world, mail, ranks.names, shape=shape)
        return group.all_reduce(torch.empty(elements, device="meta"), ALL_REDUCE[algorithm])

    return elapsed_s(plan, folder / "trace", trace), elapsed_s(plan, folder / "engine", engine)


@for_each("algorithm", ALL_REDUCE)
def test_an_all_reduce_takes_as_long_as_the_engines_own(tmp_path: Path, algorithm: str) -> None:
    traced, own = times_of(tmp_path, algorithm, collective(1, 400_000), sites=2)
    assert traced.keys() == own.keys()
    for worker, duration_s in own.items():
        assert duration_s > 0.02
        assert math.isclose(traced[worker], duration_s, rel_tol=0, abs_tol=1e-9)


def test_a_ring_takes_the_closed_form(tmp_path: Path) -> None:
    """Two ranks, one in each data centre: two steps of half of the tensor, each after the delay."""
    traced, _ = times_of(tmp_path, "ring", collective(1, 24_000), sites=1)  # so that chunks are in one piece
    header_s = on_link_s(300)
    for duration_s in traced.values():
        assert 2 * (on_link_s(12_000) + DELAY_S) < duration_s < 2 * (on_link_s(12_000) + DELAY_S + header_s) + 1e-4


def test_an_all_reduce_is_that_of_a_training(tmp_path: Path) -> None:
    """From the end of a training step to the optimizer's begin; events have microseconds."""
    text = SCENARIO.replace("WORKERS", "2").replace("workload: {trace: job}", "training: {rounds: 1}")
    (tmp_path / "t.yaml").write_text(text)
    model = "training.model={kind: declared, name: resnet18, buckets: 1}"
    paradigm = "paradigm={kind: allreduce, bucket: 1 GiB}"
    settings = (*MODELLED[:2], model, "device.step_time=1 s", paradigm, "optimizer=sgd", "simulation.network=ideal")
    training = run(tmp_path / "training", *settings, scenario=tmp_path / "t.yaml")
    expected = {}
    for event in training.of_kind("compute"):
        if event["work"] == "step":
            expected[event["node"]] = -event["t"]
        elif event["work"] == "optimizer":
            expected[event["node"]] += event["t0"]
    elements = declared_shape("resnet18", buckets=1).sizes[0]
    (tmp_path / "groups.json").write_text('{"bucket 0": [0, 1, 2, 3]}')  # the same name, as headers have it
    node = collective(1, 4 * elements, group="bucket 0")
    played = play(tmp_path, *[[node]] * 4, workers=2, workload__groups="groups.json")
    found = {name: played.round_s(rank) for rank, name in enumerate(played.workers)}
    assert found == pytest.approx(expected, abs=5e-6)


@for_each(
    "node, wan_bytes",
    [
        # what crosses the WAN, of two data centres with two ranks each; ranks of a data centre are neighbours in a ring
        (collective(1, 40_000, operation=ALL_GATHER), 2 * 3 * 40_000),
        (collective(1, 40_000, operation=REDUCE_SCATTER), 2 * 3 * 10_000),
        (collective(1, 40_000, operation=ALL_TO_ALL), 8 * 10_000),
        (collective(1, 40_000, operation=BROADCAST), 2 * 40_000),  # by a binomial tree
        (collective(1, 40_000, operation=BROADCAST, peer=3), 2 * 40_000),
        (collective(1, 40_000, operation=REDUCE, peer=2), 40_000),
        (collective(1, 40_000, operation=GATHER, peer=1), 2 * 40_000),
        (collective(1, 40_000, operation=SCATTER, peer=1), 2 * 10_000),
        (collective(1, 0, operation=BARRIER), 2 * 2 * 4),
    ],
)
def test_every_operation_moves_its_bytes(tmp_path: Path, node: TraceNode, wan_bytes: int) -> None:
    played = play(tmp_path, *[[node]] * 4, workers=2)
    moved = [
        each for each in played.run.of_kind("transfer") if each["message"] == "collective" and each["tier"] == "wan"
    ]
    assert sum(each["payload_bytes"] for each in moved) == wan_bytes
    assert all(played.round_s(rank) >= 0 for rank in range(4))


def test_the_root_of_an_operation_is_the_rank_that_the_trace_names(tmp_path: Path) -> None:
    """It is the second rank of its data centre."""
    played = play(tmp_path, *[[collective(1, 40_000, operation=BROADCAST, peer=3)]] * 4, workers=2)
    moved = [event for event in played.run.of_kind("transfer") if event["message"] == "collective"]
    root = played.workers[3]
    assert {event["target"] for event in moved} == set(played.workers) - {root}
    assert min(moved, key=lambda event: event["t0"])["source"] == root


def test_sums_take_the_memory_of_the_device(tmp_path: Path) -> None:
    """A ring of two sums half of the tensor once, and reads twice as much."""
    sums_s = []
    for rate in ("null", "16 Tbit/s"):
        (tmp_path / rate[:2]).mkdir()
        played = play(tmp_path / rate[:2], *[[collective(1, 24_000)]] * 2, workload__memory_rate=rate)
        sums = [event for event in played.run.of_kind("compute") if event["work"] == "sum"]
        sums_s.append(sum(event["modelled_s"] for event in sums) / len(sums))
    assert sums_s == pytest.approx([5e-6 + 24_000 / 4e9, 5e-6 + 24_000 / 2e12], abs=1e-6)


def test_messages_come_into_the_memory_of_the_device(tmp_path: Path) -> None:
    """And not through a processor that verifies them, at 3.2 GB/s."""
    size_bytes = 40_000_000
    ranks = [send(1, 1, size_bytes)], [receive(1, 0, size_bytes)], [compute(1, 0.1)], [compute(1, 0.1)]
    settings = {"workers": 2, "workload__memory_rate": "16 Tbit/s", "topology__lan__rate": "200 Gbit/s"}
    played = play(tmp_path, *ranks, **settings)  # type: ignore[arg-type]
    assert played.round_s(1) == pytest.approx(size_bytes / 25e9, rel=0.1)


def test_members_of_a_group_are_those_that_the_file_names(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text(json.dumps({"near": [0, 1], "far": [0, 2]}))
    nodes = [
        [collective(1, 40_000, group="near"), collective(2, 80_000, group="far")],
        [collective(1, 40_000, group="near")],
        [collective(2, 80_000, group="far")],
        [compute(1, 0.01)],
    ]
    played = play(tmp_path, *nodes, workers=2, workload__groups="groups.json")
    moved: dict[str, int] = {}
    for event in played.run.of_kind("transfer"):
        if event["message"] == "collective":
            moved[event["tier"]] = moved.get(event["tier"], 0) + event["payload_bytes"]
    assert moved == {"lan": 2 * 40_000, "wan": 2 * 80_000}


def test_operations_of_a_group_follow_each_other_in_one_order(tmp_path: Path) -> None:
    """At one rank the second operation is ready first; that of another group goes on beside it."""
    first = [compute(1, 0.3), collective(2, 8000, 1), collective(3, 8000)]
    second = [compute(1, 0.1), collective(2, 8000), collective(3, 8000, 1)]
    played = play(tmp_path, first, second)
    assert played.round_s(0) > 0.3 + 4 * DELAY_S  # the third waits for the second, which waits for the first rank


@for_each(
    "settings, problem",
    [
        (["training.batch=8"], "training.batch: has no effect beside 'workload: {trace: …}'"),
        (["device.step_time=1 s"], "device.step_time: has no effect beside 'workload: {trace: …}'"),
        (["codec=fp16"], "codec: has no effect beside 'workload: {trace: …}'"),
        (["paradigm=hips"], "paradigm: a trace's all-reduces are made by a dense algorithm among workers"),
        (["paradigm={kind: allreduce, algorithm: hitopk}"], "paradigm: a trace's all-reduces are made by a dense"),
        (["run.on=cluster"], "the files of a trace are on this machine"),
        (["faults=[{kind: nan, node: tokyo/worker0, round: 0}]"], "'nan' needs a training, but a trace is only played"),
        (["topology.data_centers[0].device={step_time: 1 s}"], "only speed, variation, slowdown have an effect"),
        (["topology.data_centers[0].workers=2"], "workload.trace: has 2 ranks, but the topology has 3 workers"),
        (["workload.placement={tokyo: [0, 1]}"], "workload.placement: 'tokyo' has 1 workers for 2 ranks"),
        (["workload.placement={tokyo: [0], osaka: [1]}"], "workload.placement: there is no data centre 'osaka' ("),
        (["workload.placement={tokyo: [0], virginia: []}"], "workload.placement: 'virginia' has 1 workers for 0 ranks"),
        (["workload.placement={tokyo: [0, 2]}"], "placement: must name each rank, from 0 on, exactly once"),
        (["workload.command=true", "simulation=null"], "is written beside a command (remove one of the two)"),
        (["workload.timeout=1 min"], "timeout: has no effect on 'trace'"),
        (["workload.trace=../job"], "lies outside the scenario's folder"),
        (["workload.groups=none"], "workload.groups: PATH/none: there is no such file; write one of process groups"),
        (["workload.groups=job.0.json"], "workload.groups: PATH/job.0.json: is not a list of process groups"),
        (["workload.kineto=none"], "workload.kineto: PATH/none: there is no such trace"),
        (["workload.trace=none"], "there is no such trace; name a folder, or a path with '{rank}' in it"),
    ],
)
def test_what_has_no_effect_is_refused(tmp_path: Path, settings: list[str], problem: str) -> None:
    written(tmp_path, [send(1, 1, 8)], [receive(1, 0, 8)])
    with pytest.raises(ScenarioError) as refused:
        build_plan(loads(scenario(tmp_path).read_text(), overrides=settings, folder=tmp_path))
    assert problem.replace("PATH", str(tmp_path)) in str(refused.value)


def test_more_work_than_a_deadline_has_is_told_of_the_trace(tmp_path: Path) -> None:
    written(tmp_path, [compute(1, 500_000)], [compute(1, 1)])
    with pytest.raises(
        ScenarioError, match=r"workload\.trace: the work of all ranks.*timeouts\.step_deadline would be"
    ):
        build_plan(loads(scenario(tmp_path).read_text(), folder=tmp_path))


def test_a_scenario_is_written_and_read_again(tmp_path: Path) -> None:
    written(tmp_path, [send(1, 1, 8)], [receive(1, 0, 8)])
    found = load(scenario(tmp_path), ["device.speed=2", "training.rounds=3"])
    again = loads(found.to_yaml(), folder=tmp_path)
    assert build_plan(again) == build_plan(found)
    assert from_json(to_json(build_plan(found))) == build_plan(found)


def test_a_trace_that_changes_before_the_run_is_refused(tmp_path: Path) -> None:
    written(tmp_path, [compute(1, 0.1)], [compute(1, 0.1)])
    plan = build_plan(load(scenario(tmp_path)))
    written(tmp_path, [compute(1, 0.1)], [compute(1, 0.25)])
    with pytest.raises(ScenarioError, match="has changed since the scenario was read; start the run again"):
        trace_worker(plan, plan.with_role("worker")[0])
