"""Measured links are forgotten after so many rounds of their own tier, which under HFA are few of the workers'."""

from __future__ import annotations

import pytest

from testbed.engine.overlay.wiring import _group, _guide
from testbed.plan.build import build_plan
from testbed.policy.overlay.events import Transfer
from testbed.policy.overlay.tsengine import TsEngine
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES

AT_WORKER = "optimizer={kind: sgd, at: worker}"


@pytest.mark.parametrize(("sync", "apart"), [("{kind: hfa, k1: 1, k2: 10}", 10), ("{kind: diloco, h: 10}", 1)])
def test_what_was_measured_is_known_five_rounds_across_later(sync: str, apart: int) -> None:
    overrides = (AT_WORKER, f"sync={sync}", "overlay={tier1: star, tier2: tsengine}")
    plan = build_plan(load(THREE_SITES, overrides), "simulate")
    guide = _guide(plan, _group(plan, "hub/global0"))
    assert isinstance(guide, TsEngine)
    first, ways = apart - 1, ("east/server0", "hub/global0")
    guide.arrived(Transfer(False, 0, first, *ways), 1e6)
    assert guide.throughput.get(*ways, first + 5 * apart) == 1e6
    assert guide.throughput.get(*ways, first + 6 * apart) is None
