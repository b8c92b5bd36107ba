"""Registration through local servers: the same run with fewer messages to the scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine import membership
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.engine.runs import MODELLED, THREE_SITES, Simulated, run
from tests.for_each import for_each

SHORT = (
    "training.rounds=3",
    "training.evaluate_every=3",
    "training.model={kind: mlp, hidden: 8}",
    "simulation.fold=false",
)
OTHERS = {
    "hfa": ("sync=hfa", "optimizer={kind: adam, at: worker}"),
    "mixedsync": ("sync={tier1: fsa, tier2: mixedsync}",),
    "tsengine": ("overlay=tsengine",),
    "folded": ("simulation.fold=true",),
    "a data centre without training": ("topology.data_centers[0].workers=0",),
    "checkpoints": ("checkpoint.every=1",),
}


def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> tuple[Simulated, Simulated]:
    """One run in which every node registers by itself, and one in which servers collect."""
    alone = run(tmp_path / "alone", *SHORT, *overrides)
    monkeypatch.setattr(membership, "COLLECTED_NODES", 1)
    return alone, run(tmp_path / "collected", *SHORT, *overrides)


def to_scheduler(ran: Simulated, kind: str) -> int:
    return sum(event["message"] == kind and event["target"].endswith("/scheduler") for event in ran.of_kind("transfer"))


def test_the_scheduler_hears_from_servers_only_and_bits_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, collected = both(tmp_path, monkeypatch)
    servers = len(alone.plan.with_role("server")) + len(alone.plan.with_role("global_server"))
    workers = len(alone.plan.training_workers)
    assert to_scheduler(alone, "register") == servers + workers
    assert to_scheduler(collected, "register") == servers
    assert to_scheduler(alone, "barrier") == workers
    assert to_scheduler(collected, "barrier") == len(alone.plan.with_role("server"))
    registered = [event for event in collected.of_kind("transfer") if event["message"] == "register"]
    arrived = {event["target"]: event["t"] for event in registered}  # of the last one
    for event in registered:
        assert event["t0"] >= arrived.get(event["source"], 0.0), "a server waits for its workers"
    assert hashes(collected) == hashes(alone)
    assert rounds_s(collected) == pytest.approx(rounds_s(alone), abs=2e-6)


@pytest.mark.sample(2)  # of 6, which take 3 s
@pytest.mark.parametrize("technique", OTHERS)
def test_other_techniques_end_with_the_same_bits(
    technique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, collected = both(tmp_path, monkeypatch, *OTHERS[technique])
    assert hashes(collected) == hashes(alone)


def test_a_resumed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "COLLECTED_NODES", 1)
    whole = run(tmp_path, *SHORT, "checkpoint.every=1")
    assert len(whole.of_kind("checkpoint")) == 2, "none is made where the run ends"
    for path in (tmp_path / "events").glob("*"):
        path.unlink()
    resumed = run(tmp_path, *SHORT, "checkpoint.every=1")
    assert {event["round"] for event in resumed.of_kind("round")} == {2}
    assert hashes(resumed) == hashes(whole)


def hashes(ran: Simulated) -> set[str]:
    return {event["parameters_sha256"] for event in ran.of_kind("final") if "parameters_sha256" in event}


def rounds_s(ran: Simulated) -> list[float]:
    (start,) = ran.of_kind("train")
    return [event["t"] - start["t"] for event in ran.of_kind("round") if event["node"] == start["node"]]


@for_each("setting", ["recovery={on_failure: continue}", "faults=[{kind: kill, node: '*', at: 1 s}]"])
def test_where_nodes_may_be_lost_each_registers_by_itself(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "COLLECTED_NODES", 1)
    plain = build_plan(load(THREE_SITES, MODELLED), "simulate")
    (worker, *_) = plain.training_workers
    assert membership.collector_of(plain, worker.name) == worker.parents[0]
    lossy = build_plan(load(THREE_SITES, (*MODELLED, setting)), "simulate")
    assert membership.collector_of(lossy, worker.name) == worker.name
    assert membership.collected_at(lossy, worker.parents[0]) == ()
