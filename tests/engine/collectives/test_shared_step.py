"""The optimizer step shared by workers: the same training, the same bits everywhere, in both worlds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.plan.model import Plan
from testbed.settings.job import Choice
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import worlds
from tests.for_each import for_each

LARS = Choice(kind="lars", options={"learning_rate": 0.5, "momentum": 0.9, "adapt_from": 20})


def plan_of(groups: list[int], optimizer: Choice = LARS, **options: Any) -> Plan:
    plan = serverless_plan(groups, "allreduce", options, rounds=5)
    return replace(plan, technique=replace(plan.technique, optimizer=optimizer))


def trained(kind: str, directory: Path, plan: Plan) -> list[torch.Tensor]:
    """The values of all workers, which must be the same bits."""
    results = run_plan(worlds(kind, directory), plan)
    first, *others = (torch.cat(values) for values in results.values())
    assert all(torch.equal(first, other) for other in others)
    return [first]


@pytest.mark.sample(2)  # of 12, which take 6 s
@pytest.mark.parametrize("work", ["norms", "update"])
@pytest.mark.parametrize(("groups", "shared_by"), [([3], "data_center"), ([2, 2], "data_center"), ([1, 3], "all")])
@pytest.mark.parametrize(
    "optimizer", [LARS, Choice(kind="adam", options={"learning_rate": 0.01})], ids=["lars", "adam"]
)
def test_shared_or_not_it_is_the_same_training(
    work: str, groups: list[int], shared_by: str, optimizer: Choice, tmp_path: Path
) -> None:
    if optimizer.kind == "adam" and work == "norms":
        return
    (alone,) = trained("virtual", tmp_path / "alone", plan_of(groups, optimizer))
    options = {"optimizer_work": work, "shared_by": shared_by}
    shared = [trained(kind, tmp_path / kind, plan_of(groups, optimizer, **options))[0] for kind in ("virtual", "real")]
    assert torch.equal(shared[0], shared[1])
    if optimizer.kind == "adam":
        assert torch.equal(shared[0], alone), "element by element, so not a bit differs"
    else:
        assert torch.allclose(shared[0], alone, rtol=1e-4, atol=1e-6)
        assert not torch.equal(alone, trained("virtual", tmp_path / "plain", _without_ratio(groups))[0])


def _without_ratio(groups: list[int]) -> Plan:
    return plan_of(groups, Choice(kind="lars", options={**LARS.options, "adapt_from": 10**9}))


@for_each("work", ["norms", "update"])
def test_shapes_alone_suffice_to_simulate_it(work: str, tmp_path: Path) -> None:
    plan = plan_of([2], optimizer_work=work)
    run_plan(worlds("virtual", tmp_path), replace(plan, training=replace(plan.training, compute="modelled")))
