"""torch.distributed's Gloo under our data-parallel training: the same job, its own all-reduce and sockets."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.devices.inventory import Gpu
from testbed.engine.guard import Guarded
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution import devices
from testbed.execution.distributed import role as role_module
from testbed.execution.distributed import torch_group
from testbed.execution.distributed.torch_group import require
from testbed.plan.model import NodePlan, Plan
from testbed.scenario.load import load
from testbed.settings.job import Choice
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import Virtual
from tests.execution.distributed.runs import Forked, forked
from tests.for_each import for_each

SCENARIO = Path(__file__).parents[3] / "scenarios" / "paradigms" / "gloo.yaml"
ROUNDS = 4
MODEL = Choice(kind="mlp", options={"hidden": 512})


def gloo_plan(groups: list[int], **options: Any) -> Plan:
    return serverless_plan(groups, "gloo", options, rounds=ROUNDS, model=MODEL)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return forked(tmp_path_factory.mktemp("gloo"), gloo_plan([2, 1], bucket=100_000))


def test_it_trains_as_our_all_reduce_does(trained: Forked, tmp_path: Path) -> None:
    """The order of a sum is another, so the last bits are; nothing else is."""
    results = trained.values
    plan = serverless_plan([2, 1], "allreduce", {}, rounds=ROUNDS, model=MODEL)
    ours = run_plan(Virtual(tmp_path), plan)
    for name, values in results.items():
        for mine, reference in zip(values, ours[name], strict=True):
            assert torch.allclose(mine, reference, atol=1e-5)
        assert all(torch.equal(a, b) for a, b in zip(values, results["a/worker0"], strict=True))


def test_its_sum_is_clipped_as_that_of_our_all_reduce(trained: Forked, tmp_path: Path) -> None:
    def clipped(plan: Plan) -> Plan:
        optimizer = plan.technique.optimizer
        options = {**optimizer.options, "clip_norm": 0.1}
        return replace(plan, technique=replace(plan.technique, optimizer=Choice(kind=optimizer.kind, options=options)))

    results = forked(tmp_path / "gloo", clipped(gloo_plan([2, 1], bucket=100_000))).values
    plan = serverless_plan([2, 1], "allreduce", {}, rounds=ROUNDS, model=MODEL)
    ours = run_plan(Virtual(tmp_path), clipped(plan))["a/worker0"]
    for values in results.values():
        assert all(torch.allclose(mine, other, atol=1e-5) for mine, other in zip(values, ours, strict=True))
    free = trained.values["a/worker0"]
    assert not all(torch.allclose(mine, other, atol=1e-5) for mine, other in zip(free, ours, strict=True))


def test_its_bytes_are_counted_by_peer(trained: Forked) -> None:
    """A ring: all come from one neighbour, 2 (p − 1)/p of the gradients and the flag, and a little for its headers."""
    results = trained.values
    payload = 2 * 2 / 3 * 4 * (sum(value.numel() for value in results["a/worker0"]) + 2)  # two buckets, a flag each
    for name in results:
        transfers = [e for e in trained.events[name] if e["kind"] == "transfer" and e["message"] == "gloo"]
        by_source: dict[str, int] = {}
        for event in transfers:
            by_source[event["source"]] = by_source.get(event["source"], 0) + event["payload_bytes"]
        assert name not in by_source
        assert ROUNDS * payload <= max(by_source.values()) <= ROUNDS * (payload * 1.05 + 6000), by_source
        assert {event["round"] for event in transfers} == set(range(ROUNDS))
        assert all(event["tier"] == ("lan" if event["source"][0] == name[0] else "wan") for event in transfers)


def test_the_last_round_is_counted_though_the_others_have_closed_their_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gets the processor late reads its counters when the others' groups are gone."""
    read = torch_group.Gloo.received_bytes

    def late(group: torch_group.Gloo) -> dict[str, int]:
        time.sleep(0.5 if group.group.rank() == 2 else 0.0)
        return read(group)

    monkeypatch.setattr(torch_group.Gloo, "received_bytes", late)
    run = forked(tmp_path, serverless_plan([2, 1], "gloo", {}, rounds=2))
    rounds = [e["round"] for e in run.events["b/worker0"] if e["kind"] == "transfer" and e["message"] == "gloo"]
    assert {*rounds} == {0, 1}


@for_each("gpus", [0, 2])
def test_nccl_needs_a_gpu_for_each_worker(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = [Gpu(index, f"GPU-{index}", "H200", "570", 1 << 37, 1 << 37, "9.0") for index in range(gpus)]
    monkeypatch.setattr(devices, "gpus", lambda: there)
    with pytest.raises(CapabilityError, match=f"each of 3 workers, but this machine has {gpus}"):
        require(gloo_plan([2, 1], backend="nccl"))
    require(gloo_plan([2, 1]))


def test_virtual_time_refuses_it() -> None:
    with pytest.raises(ScenarioError, match="its own sockets"):
        load(SCENARIO, ["run.on=simulate"])


def test_gradients_are_looked_at_before_the_library_sums_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with our own all-reduce: one that is not finite ends the run, and faults of kind ``nan`` happen."""
    learners: list[Any] = []

    def keep(plan: Plan, node: NodePlan, learner: Any, *_: Any) -> None:
        learners.append(learner)

    monkeypatch.setattr(role_module, "serverless_worker", keep)
    plan = gloo_plan([1, 1])
    role_module.distributed_worker(plan, plan.with_role("worker")[1])
    assert isinstance(learners[0], Guarded)
