"""Overlays put together from a Plan: what they remember between rounds of their tier, and groups of nobody."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import torch

from testbed.engine.overlay.wiring import group_of
from testbed.plan.build import build_plan
from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.tsengine import TsEngine
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES, run
from tests.engine.sync.test_properties import SMALL
from tests.for_each import for_each

AT_WORKER = "optimizer={kind: sgd, at: worker}"


@for_each(("sync", "apart"), [("{kind: hfa, k1: 1, k2: 10}", 10), ("{kind: diloco, h: 10}", 1)])
def test_what_was_measured_is_known_five_rounds_across_later(sync: str, apart: int) -> None:
    overrides = (AT_WORKER, f"sync={sync}", "overlay={tier1: star, tier2: tsengine}")
    plan = build_plan(load(THREE_SITES, overrides), "simulate")
    policy = group_of(plan, "hub/global0", Mock()).policy
    assert isinstance(policy, TsEngine)
    first, ways = apart - 1, ("east/server0", "hub/global0")
    policy.arrived(OverlayTransfer(False, 0, first, *ways), 1e6)
    assert policy.throughput.get(*ways, first + 5 * apart) == 1e6
    assert policy.throughput.get(*ways, first + 6 * apart) is None


@for_each("overlay", ["tree", "netstorm", "tsengine"])
def test_a_central_data_centre_that_only_serves_has_an_overlay_of_nobody(tmp_path: Path, overlay: str) -> None:
    """GeoMX's own layout, with one word for both tiers."""
    serves = ("data_centers[hub].workers=0", *SMALL, "training.rounds=2")
    done = run(tmp_path, *serves, f"overlay={overlay}")
    assert torch.equal(done.parameters("east/worker0"), done.parameters("west/worker0"))
