"""How keys are cut for the servers above: an optimizer that looks at whole tensors refuses slices of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine.slicing import slicer_of
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES
from tests.faults.runs import run

SIZES = (100, 7, 30_000)
LARS = "optimizer={kind: lars, learning_rate: 0.1}"
SLICES = "order={kind: p3, slice: 400 bytes, overlap: none}"


def plan_of(*overrides: str) -> Plan:
    return build_plan(load(THREE_SITES, overrides), "simulate")


@pytest.mark.parametrize("overrides", [(SLICES,), ("shard=multigps",)])
def test_lars_takes_no_norms_of_slices(overrides: tuple[str, ...]) -> None:
    """Each slice would have a ratio of its own, and the result would depend on how tensors are cut."""
    with pytest.raises(ScenarioError, match=r"'lars' takes norms of whole tensors.*write 'at: worker'"):
        slicer_of(plan_of(LARS, *overrides))(SIZES, 2)
    for whole in ((), ("order={kind: p3, slice: 1 MB, overlap: none}",), ("shard={kind: multigps, bound: 100000}",)):
        assert len(slicer_of(plan_of(LARS, *whole))(SIZES, 2)) == 3
    at_worker = "optimizer={kind: lars, learning_rate: 0.1, at: worker}"
    for others in ("optimizer={kind: adam, learning_rate: 0.1}", at_worker):
        assert len(slicer_of(plan_of(others, *overrides))(SIZES, 2)) > 3


def test_a_run_says_so(tmp_path: Path) -> None:
    assert "'lars' takes norms of whole tensors" in str(run(tmp_path, LARS, SLICES).error)
