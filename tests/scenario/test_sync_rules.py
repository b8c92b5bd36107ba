"""Pairs of synchronisation algorithms: those that make rounds together are accepted, the others refused by name."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.scenario.load import loads
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

GLOBAL, WORKER = "{kind: sgd, at: global}", "{kind: sgd, at: worker}"


@for_each(
    ("override", "message"),
    [
        ("sync={tier1: fsa, tier2: ssp}", "there is one tier, and 'tier1' differs from 'tier2' (write 'sync: ssp')"),
        ("codec={tier1: none, tier2: fp16}", "and 'tier1' differs from 'tier2' (write 'codec: fp16')"),
        ("sync={kind: hfa, k1: 2, k2: 3}", "there are no rounds inside a data centre to count (write 'k2: 1')"),
    ],
)
def test_one_tier_has_one_value_on_every_axis(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(GOOD, overrides=["paradigm=ps", override, f"optimizer={WORKER}"])
    assert message in str(caught.value)


@for_each(
    ("tier1", "tier2", "optimizer", "message"),
    [
        ("mixedsync", "fsa", GLOBAL, "sync.tier1: 'mixedsync' stands on the WAN only (write 'tier1: fsa')"),
        ("tap", "fsa", GLOBAL, "'fsa' counts one push per data centre and round, and 'tap' on tier 1 has no such"),
        ("hfa", "fsa", WORKER, "'hfa' spans both tiers with the same options"),
        ("hfa", "hfa", GLOBAL, "with 'hfa' the optimizer runs on the workers, for their local steps"),
        ("fsa", "mixedsync", WORKER, "needs the sum over all of them, and 'mixedsync' does not wait for it"),
    ],
)
def test_refused_with_the_reason(tier1: str, tier2: str, optimizer: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(GOOD, overrides=[f"sync={{tier1: {tier1}, tier2: {tier2}}}", f"optimizer={optimizer}"])
    assert message in str(caught.value)


@for_each("kind", ["hfa", "diloco", "esync"])
def test_local_steps_have_the_same_options_on_both_tiers(kind: str) -> None:
    """Else those of one tier would be read for what the other one does: the outer optimizer, the first steps."""
    mine, theirs = f"{{kind: {kind}, weights: worker}}", f"{{kind: {kind}, weights: sample}}"
    loads(GOOD, overrides=[f"sync={{tier1: {mine}, tier2: {mine}}}", f"optimizer={WORKER}"])
    with pytest.raises(ScenarioError, match="both tiers with the same options"):
        loads(GOOD, overrides=[f"sync={{tier1: {mine}, tier2: {theirs}}}", f"optimizer={WORKER}"])


def test_sums_come_down_to_optimizers_on_the_workers_on_both_tiers() -> None:
    """Differences from one sum to the next are no differences of parameters."""
    sums = "{kind: dgc, pull: sparse-sum}"
    for codec in ("{tier1: topk, tier2: none}", f"{{tier1: {{kind: dgc, bound: 10}}, tier2: {sums}}}"):
        with pytest.raises(ScenarioError, match=r"codec.tier1: 'pull: difference' follows parameters"):
            loads(GOOD, overrides=[f"codec={codec}", f"optimizer={WORKER}"])
        loads(GOOD, overrides=[f"codec={codec}", f"optimizer={GLOBAL}"])
    plain_inside = "codec={tier1: mpq, tier2: {kind: mpq, pull: sparse-sum}}"
    for accepted in ("codec={tier1: {kind: topk, pull: sparse-sum}, tier2: none}", plain_inside):
        loads(GOOD, overrides=[accepted, f"optimizer={WORKER}"])
