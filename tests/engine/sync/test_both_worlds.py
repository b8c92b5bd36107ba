"""GeoMX' observable behaviours (rows of that list), in virtual time and over real sockets by the same assertions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine import roles
from testbed.engine.kvworker import KVWorker
from testbed.plan.model import NodePlan, Plan
from testbed.world import Role, World
from tests.engine.runs import Simulated
from tests.engine.sync.constant import everywhere, over_sockets, the_number, use_constants

WORKERS = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0")
FAST = ("device.step_time=5 ms", "training.evaluate_every=4", "training.rounds=4")
REAL = ("training.model={kind: mlp, hidden: 8}", *FAST)
LOCAL = "optimizer={kind: sgd, learning_rate: 0.1, at: worker}"
SGD = "optimizer={kind: sgd, learning_rate: 0.1}"
P3 = "order={kind: p3, slice: 8 bytes, overlap: none}"
LATE_S = 0.4
SOCKETS = pytest.param("sockets", marks=pytest.mark.slow)  # 1 s each
both = pytest.mark.parametrize("world", ["virtual", "sockets"])


def pushes(run: Simulated, source: str, target: str) -> list[tuple[int, int]]:
    """(round, key) of what ``source`` pushed to ``target``."""
    return sorted(
        (event["round"], event["key"])
        for event in run.of_kind("transfer", target)
        if event["message"] == "push" and event["source"] == source
    )


def begins(run: Simulated, node: str) -> float:
    return float(min(event["t0"] for event in run.of_kind("round", node)))


@both
def test_a_store_is_there_when_everybody_has_joined(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 4: one node comes late, and nobody has begun without it."""
    make = roles._worker

    def late(plan: Plan, node: NodePlan, files: Any, library: Any) -> Role:
        role = make(plan, node, files, library)

        async def run(world: World) -> Any:
            await world.sleep(LATE_S)
            return await role(world)

        return run if node.name == "west/worker0" else role

    monkeypatch.setattr(roles, "_worker", late)
    use_constants(monkeypatch, lambda rank, values: 1.0)
    done = everywhere(world, tmp_path, *FAST)
    assert all(event["t0"] >= LATE_S for event in done.of_kind("transfer") if event["message"] in ("declare", "pull"))
    assert min(begins(done, name) for name in WORKERS) >= LATE_S


@both
@pytest.mark.parametrize(
    "technique", ["sync={kind: hfa, k1: 1, k2: 2}", "order={kind: p3, slice: 8 bytes, overlap: none}"]
)
def test_a_pull_waits_for_the_masters_value(
    technique: str, world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 7 and 8: every worker begins with values of its own, and has the master's after a pull that had to wait."""
    init, first = KVWorker.init, {}

    async def late(self: KVWorker, *arguments: Any) -> None:
        await self._world.sleep(LATE_S / 2)  # for each of two keys
        await init(self, *arguments)

    async def pull(self: KVWorker, keys: Any, *newest: Any) -> Any:
        values = await pull_(self, keys, *newest)
        first[self._world.node] = (the_number(values), self._world.now())
        return values

    pull_ = KVWorker.pull
    monkeypatch.setattr(KVWorker, "pull", pull)
    monkeypatch.setattr(KVWorker, "init", late)
    use_constants(monkeypatch, lambda rank, values: 1.0)
    everywhere(world, tmp_path, technique, LOCAL if "hfa" in technique else SGD, *FAST)
    assert {first[name][0] for name in WORKERS} == {0.0}, "the master is worker 0, and its values are its rank"
    assert min(first[name][1] for name in WORKERS) >= LATE_S


@pytest.mark.parametrize("world", ["virtual", SOCKETS])
def test_a_slow_data_centre_delays_fsa_and_not_the_others_of_mixedsync(world: str, tmp_path: Path) -> None:
    """Rows 11, 18 and 20."""
    slow = ("data_centers[west].device.speed=0.04", "device.variation=0.5")  # 125 ms a step
    fsa = everywhere(world, tmp_path / "1", *REAL, SGD, *slow)
    mixed = everywhere(world, tmp_path / "2", *REAL, SGD, "sync=mixedsync", *slow)
    slowest_s = min(event["t"] - event["t0"] for event in fsa.of_kind("round", "hub/worker0")[1:])
    steps = [e["modelled_s"] for e in fsa.of_kind("compute", "west/worker0") if e["work"] == "step"]
    assert slowest_s >= min(steps)
    made = {name: len(mixed.of_kind("round", name)) for name in WORKERS}
    assert min(made[name] for name in WORKERS[:3]) > made["west/worker0"]
    assert torch.equal(mixed.parameters("east/worker0"), mixed.parameters("east/worker1"))


@both
def test_one_step_for_each_push_of_a_data_centre(world: str, tmp_path: Path) -> None:
    """Row 19, for every key."""
    done = everywhere(world, tmp_path, *REAL, SGD, "sync=mixedsync", "device.variation=80 %")
    made = [(event["contributors"][0], event["round"], event["key"]) for event in done.of_kind("update")]
    sent = [
        (site, *push)
        for site in ("hub/server0", "east/server0", "west/server0")
        for push in pushes(done, site, "hub/global0")
    ]
    assert sorted(made) == sorted(sent)
    assert abs(len(done.of_kind("round")) - 4 * 4) <= 1  # rounds, workers; those of east make theirs together


@pytest.mark.parametrize("world", ["virtual", SOCKETS])
def test_hfa_with_single_steps_is_parameter_averaging(world: str, tmp_path: Path) -> None:
    """Row 24: each step's mean over all workers' models, which is SGD on the mean of their gradients."""
    hfa = everywhere(world, tmp_path / "1", *REAL, LOCAL, "sync={kind: hfa, k1: 1, k2: 1, weights: worker}")
    fsa = everywhere(world, tmp_path / "2", *REAL, "optimizer={kind: sgd, learning_rate: 0.025}")
    assert torch.allclose(hfa.parameters("west/worker0"), fsa.parameters("west/worker0"), atol=2e-6)
    other = everywhere(world, tmp_path / "3", *REAL, LOCAL, "sync={kind: hfa, k1: 2, k2: 1, weights: worker}")
    assert not torch.allclose(other.parameters("west/worker0"), fsa.parameters("west/worker0"), atol=1e-3)


@pytest.mark.parametrize("world", ["virtual", SOCKETS])
def test_esync_balances_steps_and_ends_every_round_with_one_model(world: str, tmp_path: Path) -> None:
    """Rows 30 and 32: a worker eight times slower does one step a round, those who wait for it several."""
    slow = ("data_centers[east].worker_devices={worker1: {speed: 0.125}}", "device.step_time=25 ms")
    done = everywhere(world, tmp_path, *REAL, "training.rounds=5", LOCAL, "sync={tier1: esync, tier2: fsa}", *slow)
    steps = {name: [event["steps"] for event in done.of_kind("round", name)] for name in WORKERS}
    assert steps["east/worker1"] == [1] * 5
    assert steps["east/worker0"][0] == 1
    assert min(steps["east/worker0"][2:]) >= 4
    assert len(done.hashes()) == 1


@pytest.mark.slow  # 20 s
def test_two_global_servers_on_one_host_start_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 65: a hundred runs over real sockets, one after the other, and the same answer each time."""
    use_constants(monkeypatch, lambda rank, values: 2.0**rank)
    two = ("data_centers[hub].global_servers=2", "shard=multigps", "optimizer={kind: sgd, learning_rate: 1}")
    for _ in range(100):
        done = over_sockets(*two, "training.rounds=1", "training.evaluate_every=1", "device.step_time=1 ms")
        assert {the_number(done.results[name]) for name in WORKERS} == {-15.0}
