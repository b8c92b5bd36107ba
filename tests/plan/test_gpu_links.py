"""NCCL sums by the links of GPUs: not where an emulated link lies between the workers."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from tests.for_each import for_each
from tests.plan.test_build import plan_of

NCCL = "paradigm={kind: hips, inside: nccl}"
UNSHAPED = "topology.lan={rate: 10 Gbit/s, delay: 0 ms}"


@for_each("lan", ["{rate: 1 Gbit/s, delay: 0 ms}", "{rate: 10 Gbit/s, delay: 0.1 ms}"])
def test_sums_inside_would_bypass_a_shaped_lan(lan: str) -> None:
    cure = r"the emulated LAN of east \(write 'ring' or 'gloo', or leave that LAN unshaped"
    with pytest.raises(ScenarioError, match=cure) as refused:
        plan_of(NCCL, f"topology.lan={lan}", on="emulate")
    assert "paradigm.inside" in str(refused.value)


@for_each("on", ["emulate", "exact"])
def test_sums_over_all_would_bypass_the_wan(on: str) -> None:
    with pytest.raises(ScenarioError, match=r"paradigm.backend: .* the emulated WAN \(write 'gloo', or .*inside: nccl"):
        plan_of("paradigm={kind: gloo, backend: nccl}", UNSHAPED, on=on)
