"""Local steps over all-reduce and gossip: the mathematics of parameter servers, equal bits at all ranks, few bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.plan.model import Plan
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.gossip.graphs import GRAPHS
from testbed.policy.gossip.mixing import LanAndWan, Metropolis, PushToOne, rounds_to_tell_all
from testbed.policy.sync import SYNC
from testbed.settings.job import Choice
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import worlds
from tests.engine.runs import Simulated, run
from tests.for_each import for_each
from tests.pairs import in_turn

SMALL = (
    "training.model={kind: mlp, hidden: 16}",
    "training.rounds=6",
    "training.evaluate_every=3",
    "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, at: worker}",
)
STEPS = {
    "hfa": "{kind: hfa, k1: 3, k2: 2}",
    "hfa one tier": "{kind: hfa, k1: 3, k2: 1}",
    "hfa by samples": "{kind: hfa, k1: 2, k2: 3, weights: sample}",
    "esync": "{kind: esync, fixed_steps: 3}",
    "diloco": "{kind: diloco, h: 3}",
    "local SGD": "{kind: diloco, h: 3, outer_learning_rate: 1, outer_momentum: 0}",
}
WORKERS = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0")


def crossing(result: Simulated, kind: str) -> set[int]:
    """Return the rounds in which messages of this kind went from one data centre to another."""
    sent = [event for event in result.of_kind("transfer") if event["message"] == kind and event["key"] >= 0]
    return {event["round"] for event in sent if event["tier"] == "wan" and event["round"] >= 0}


@pytest.mark.sample(1)  # of 6, which take 2 s
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_all_reduce_has_the_values_of_parameter_servers(steps: str, tmp_path: Path) -> None:
    one_tier = "k2: 1" in steps or "hfa" not in steps
    servers = run(tmp_path / "servers", *SMALL, f"sync={steps}", f"paradigm={'ps' if one_tier else 'hips'}")
    ranks = run(tmp_path / "ranks", *SMALL, f"sync={steps}", "paradigm=allreduce")
    for worker in WORKERS:
        assert torch.allclose(ranks.parameters(worker), servers.parameters(worker), atol=1e-5)
    assert len(ranks.hashes()) == 1
    assert Counter(event["steps"] for event in ranks.of_kind("round")).keys() == {2 if "k1: 2" in steps else 3}


@for_each("at", ["worker", "global"])
def test_an_optimizer_steps_with_what_it_steps_with_beside_servers(at: str, tmp_path: Path) -> None:
    """The mean of all gradients where it says that it stands at workers, else their sum."""
    optimizer = f"optimizer={{kind: sgd, learning_rate: 0.05, momentum: 0.9, at: {at}}}"
    one, other = (run(tmp_path / kind, *SMALL[:3], optimizer, f"paradigm={kind}") for kind in ("ps", "allreduce"))
    for worker in WORKERS:
        assert torch.allclose(one.parameters(worker), other.parameters(worker), atol=1e-5)


def test_hierarchical_top_k_is_dense_in_rounds_inside_a_data_centre(tmp_path: Path) -> None:
    texts = (
        *SMALL,
        "sync={kind: hfa, k1: 2, k2: 3}",
        "data_centers[*].workers=2",
        "training.rounds=2",
        "training.evaluate_every=1",
    )
    ring, top_k = (
        run(tmp_path / kind, *texts, f"paradigm={{kind: allreduce, algorithm: {kind}}}") for kind in ("ring", "hitopk")
    )
    assert crossing(top_k, "collective") == set()
    assert top_k.hashes() == ring.hashes() and len(ring.hashes()) == 3


def test_rounds_inside_a_data_centre_stay_there(tmp_path: Path) -> None:
    hfa = "sync={kind: hfa, k1: 2, k2: 3}"
    summed = run(tmp_path / "sums", *SMALL, hfa, "paradigm=allreduce")
    assert crossing(summed, "collective") == {2, 5}
    for algorithm in ("dpsgd", "sgp"):
        mixed = run(tmp_path / algorithm, *SMALL, hfa, f"paradigm={{kind: gossip, algorithm: {algorithm}}}")
        assert crossing(mixed, "gossip") == {2, 5}


def with_steps(plan: Plan, steps: Choice) -> Plan:
    choice = replace(steps, options={**vars_of(steps), **steps.options})
    return replace(plan, technique=replace(plan.technique, sync_tier1=choice, sync_tier2=choice))


def vars_of(steps: Choice) -> dict[str, Any]:
    options = SYNC[steps.kind].Options()
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


DILOCO = Choice(kind="diloco", options={"h": 3})
HFA = Choice(kind="hfa", options={"k1": 2, "k2": 2})


def finals(runs: Any, names: list[str]) -> set[str]:
    return {event["parameters_sha256"] for name in names for event in runs.events(name) if event["kind"] == "final"}


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model of a worker, summed without an algorithm."""
    plan = with_steps(serverless_plan([2, 1, 2], "allreduce", {"algorithm": "direct"}), DILOCO)
    return run_plan(worlds("virtual", tmp_path_factory.mktemp("direct")), plan)["a/worker0"]


@pytest.mark.sample(2)  # of 12, which take 5 s
@pytest.mark.parametrize("algorithm", ALL_REDUCE)
def test_every_algorithm_ends_with_equal_bits_at_all_ranks(algorithm: str, tmp_path: Path, direct: Any) -> None:
    plan = with_steps(serverless_plan([2, 1, 2], "allreduce", {"algorithm": algorithm, "segments": 2}), DILOCO)
    runs = worlds("virtual", tmp_path / algorithm)
    results = run_plan(runs, plan)
    assert len(finals(runs, list(results))) == 1
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(results["c/worker1"], direct, strict=True))


@pytest.mark.sample(1)  # of 5, which take 3 s
@pytest.mark.parametrize(("paradigm", "steps"), in_turn(["ring", "hitopk", "dpsgd", "sgp"], [DILOCO, HFA]))
def test_both_worlds_end_with_the_same_parameters(paradigm: str, steps: Choice, tmp_path: Path) -> None:
    family = "gossip" if paradigm in ("dpsgd", "sgp") else "allreduce"
    plan = with_steps(serverless_plan([2, 2], family, {"algorithm": paradigm}, rounds=4), steps)
    hashes = set()
    for kind in ("real", "virtual"):
        runs = worlds(kind, tmp_path / kind)
        names = list(run_plan(runs, plan))
        hashes |= finals(runs, names)
    assert len(hashes) == 1


UNEVEN = ("data_centers[west].device.speed=0.25", "topology.links[*].rate=200 Mbit/s")


@for_each("paradigm", ["allreduce", "gossip", "{kind: gossip, algorithm: sgp, graph: complete}"])
def test_fast_workers_take_the_steps_that_fit(paradigm: str, tmp_path: Path) -> None:
    """West's steps last 400 ms, the others' 100 ms."""
    result = run(tmp_path / "run", *SMALL, *UNEVEN, f"paradigm={paradigm}", "sync=esync")
    steps = {worker: [event["steps"] for event in result.of_kind("round", worker)] for worker in WORKERS}
    assert steps["west/worker0"] == [1] * 6
    for worker in WORKERS[:-1]:
        assert steps[worker][0] == 1
        assert set(steps[worker][3:]) <= {3, 4}  # news of a worker takes a round per hop
    alone = run(tmp_path / "alone", *SMALL, *UNEVEN, f"paradigm={paradigm}", "sync=fsa", "optimizer.at=global")
    assert result.round_s("west/worker0") < 1.1 * alone.round_s("west/worker0")


def test_all_stop_after_a_round_that_crossed(tmp_path: Path) -> None:
    texts = (
        "training.rounds=300",
        "training.evaluate_every=1",
        "training.target_accuracy=0.7",
        "paradigm=allreduce",
        "sync={kind: hfa, k1: 2, k2: 3}",
    )
    result = run(tmp_path / "run", *SMALL, *texts)
    rounds = {len(result.of_kind("round", worker)) for worker in WORKERS}
    assert len(rounds) == 1 and rounds.pop() % 3 == 0
    assert len(result.hashes()) == 1


@pytest.mark.sample(1)  # of 6, which take 4 s
@pytest.mark.parametrize("codec", ["fp16", "{kind: topk, ratio: 0.1, bound: 100}", "{kind: bisparse, bound: 100}"])
@pytest.mark.parametrize("steps", ["hfa", "diloco"])
def test_codecs_carry_changes_of_models(steps: str, codec: str, tmp_path: Path) -> None:
    result = run(
        tmp_path / "run",
        *SMALL,
        f"sync={STEPS[steps]}",
        f"codec={codec}",
        "paradigm=allreduce",
        "training.rounds=20",
        "optimizer.momentum=0",
    )
    assert len(result.hashes()) == 1
    losses = [event["loss"] for event in result.of_kind("round", "hub/worker0")]
    assert losses[-1] < 0.9 * losses[0]


def test_pairs_exchange_inside_most_of_the_time(tmp_path: Path) -> None:
    paradigm = "paradigm={kind: gossip, algorithm: adpsgd, graph: complete}"
    result = run(tmp_path / "run", *SMALL, "sync={kind: hfa, k1: 2, k2: 3}", paradigm, "data_centers[*].workers=2")
    assert crossing(result, "gossip") - {0} and all((round_ + 1) % 3 == 0 for round_ in crossing(result, "gossip"))


def test_news_cross_in_every_lan_and_wan_period() -> None:
    """What one rank knows reaches all, from any round on, in the rounds that the mixing promises."""
    sites = [[0, 1], [2, 3, 4], [5]]
    for inside, across in (
        (Metropolis(((1,), (0,), (3, 4), (2, 4), (2, 3), ())), Metropolis(GRAPHS["ring"](6))),
        (PushToOne(sites), PushToOne([range(6)])),
    ):
        mixing = LanAndWan(inside, across, 3)
        for start in range(mixing.period):
            known = [{rank} for rank in range(6)]
            rounds = max(rounds_to_tell_all(mixing, rank, start) for rank in range(6))
            for round_ in range(start, start + rounds):
                before = [set(some) for some in known]
                for rank in range(6):
                    part = mixing.part(round_, rank)
                    assert all(rank in mixing.part(round_, to).sends or to != rank for to in part.sends)
                    for source, _ in part.receives:
                        assert rank in mixing.part(round_, source).sends
                        known[rank] |= before[source]
            assert all(len(some) == 6 for some in known)
