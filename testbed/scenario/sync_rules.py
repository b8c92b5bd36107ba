"""Which synchronisation algorithms go together on two tiers, and with which optimizer; read by ``compatibility``.

The algorithm on tier 1 is the one that workers face: it says what they push. Tier 2 must be able to combine that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.scenario.rules import Violation

if TYPE_CHECKING:
    from testbed.scenario.schema import Scenario

ASYNCHRONOUS = ("tap", "ssp", "mixedsync")
SYNCHRONOUS = ("fsa", "bsp")


def sync_problems(scenario: Scenario) -> Iterator[Violation]:
    """What is wrong with ``sync``, and with where the optimizer runs under it."""
    tier1, tier2 = scenario.sync.tier1, scenario.sync.tier2
    if scenario.paradigm.trait("tiers") == 1:
        yield from _one_tier_problems(scenario)
        return
    if 1 not in SYNC[tier1.kind].tiers:
        yield Violation(("sync", "tier1"), f"'{tier1.kind}' stands on the WAN only", "write 'tier1: fsa'")
        return
    pushed = SYNC[tier1.kind].contribution
    if pushed is Contribution.GRADIENT:
        yield from _gradient_problems(tier1.kind, tier2.kind)
    else:
        yield from _local_step_problems(scenario)
    yield from _optimizer_problems(scenario, pushed)
    yield from _codec_problems(scenario)


def _one_tier_problems(scenario: Scenario) -> Iterator[Violation]:
    """Workers face the global servers: one value on every axis that knows tiers, and no rounds inside a data centre."""
    for axis in ("sync", "codec", "overlay"):
        tiers = getattr(scenario, axis)
        if tiers.tier1 != tiers.tier2 and tiers.tier1.kind != getattr(SYNC.get(tiers.tier2.kind), "partner", None):
            problem = f"with 'paradigm: {scenario.paradigm.kind}' there is one tier, and 'tier1' differs from 'tier2'"
            yield Violation((axis,), problem, f"write '{axis}: {tiers.tier2.kind}'")
    tier = scenario.sync.tier2
    if tier.kind == "hfa" and tier.options()["k2"] != 1:
        problem = "with one tier there are no rounds inside a data centre to count"
        yield Violation(("sync", "tier2", "k2"), problem, "write 'k2: 1'")
    yield from _optimizer_problems(scenario, SYNC[tier.kind].contribution)


def _gradient_problems(tier1: str, tier2: str) -> Iterator[Violation]:
    if SYNC[tier2].contribution is not Contribution.GRADIENT:
        problem = f"'{tier2}' combines models, but with '{tier1}' on tier 1 workers push gradients"
        yield Violation(("sync", "tier2"), problem, f"write 'sync: {tier2}' for both tiers")
    elif tier1 in ASYNCHRONOUS and tier2 not in ASYNCHRONOUS:
        problem = (
            f"'{tier2}' counts one push per data centre and round, and with '{tier1}' below there is no such round"
        )
        yield Violation(("sync", "tier2"), problem, "write 'tier2: tap', 'ssp' or 'mixedsync'")


def _local_step_problems(scenario: Scenario) -> Iterator[Violation]:
    tier1, tier2 = scenario.sync.tier1, scenario.sync.tier2
    if tier1.kind == "hfa" and tier2 != tier1:
        yield Violation(("sync", "tier2"), "HFA spans both tiers with the same options", "write 'sync: {kind: hfa, …}'")
    elif tier2.kind == tier1.kind and tier2 != tier1:
        problem = f"'{tier1.kind}' spans both tiers with the same options"
        yield Violation(("sync", "tier2"), problem, f"write 'sync: {{kind: {tier1.kind}, …}}', or 'tier2: fsa'")
    elif tier2.kind not in (tier1.kind, *SYNCHRONOUS):
        problem = f"with '{tier1.kind}' on tier 1 every round waits for all data centres, and '{tier2.kind}' does not"
        yield Violation(("sync", "tier2"), problem, f"write 'tier2: fsa' or 'tier2: {tier1.kind}'")


def _optimizer_problems(scenario: Scenario, pushed: Contribution) -> Iterator[Violation]:
    if scenario.training.model.kind == "script":
        return  # brings its own
    kind, at = scenario.optimizer.kind, scenario.optimizer.options().get("at")
    if pushed is not Contribution.GRADIENT and at != "worker":
        problem = f"with '{scenario.sync.tier2.kind}' the optimizer runs on the workers, for their local steps"
        yield Violation(("optimizer",), problem, f"write 'optimizer: {{kind: {kind}, at: worker}}'")
    elif pushed is Contribution.GRADIENT and at == "worker":
        late = next(
            (tier.kind for tier in (scenario.sync.tier1, scenario.sync.tier2) if _waits_for_nobody(tier.kind)), None
        )
        if late:
            problem = f"an optimizer on every worker needs the sum over all of them, and '{late}' does not wait for it"
            yield Violation(("optimizer", "at"), problem, "write 'at: global'")


def _codec_problems(scenario: Scenario) -> Iterator[Violation]:
    """What a codec cannot do between workers and their server."""
    if scenario.paradigm.trait("tiers") != 2:
        return
    sync, codec = scenario.sync.tier1.kind, scenario.codec.tier1
    at_worker = scenario.optimizer.options().get("at") == "worker"
    if at_worker and sync in SYNCHRONOUS and codec.kind != "mpq" and codec.options().get("pull") == "difference":
        problem = "'pull: difference' follows parameters, and to workers with an optimizer of their own sums come down"
        yield Violation(("codec", "tier1"), problem, "write 'pull: sparse-sum'")


def _waits_for_nobody(kind: str) -> bool:
    return kind in ASYNCHRONOUS
