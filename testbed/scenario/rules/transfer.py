"""Rules of codec, order and overlay: what may be compressed, cut, lost or merged on its way."""

from __future__ import annotations

from testbed.codec.options import CODECS
from testbed.policy.events import Contribution
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import TIERS
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    kinds,
    overlaps,
    pushed,
    sums_come_down,
    tiers_of,
    updates_on_workers,
)
from testbed.scenario.schema import Scenario


def difference_follows_parameters(scenario: Scenario) -> Found:
    if not sums_come_down(scenario):
        return
    for number, (tier, codec) in enumerate(by_tier(scenario.codec), start=1):
        follows = codec.declared.pull_on(codec.options, number) == "difference"
        if follows and (tier == "tier2" or tiers_of(scenario) == 2):
            yield Violation(
                ("codec", tier),
                "'pull: difference' follows parameters, and to workers with an optimizer of their own sums of "
                "gradients come down",
                "write 'pull: sparse-sum'",
            )


def overlap_needs_finished_values(scenario: Scenario) -> Found:
    if overlaps(scenario) and (pushed(scenario) is not Contribution.GRADIENT or updates_on_workers(scenario)):
        yield Violation(
            ("order",),
            "'overlap: layers' begins the next forward pass layer by layer, with values that come down ready to use; "
            "here workers update their own model, all of it at once",
            "write 'overlap: none'; slices and priorities have their effect all the same",
        )


def merging_needs_rounds(scenario: Scenario) -> Found:
    for tier in TIERS:
        overlay = getattr(scenario.overlay, tier)
        if not overlay.declared.relays or getattr(scenario.sync, tier).declared.waits:
            continue
        if not overlay.declared.routes:
            yield Violation(
                ("overlay", tier),
                f"'{overlay.kind}' brings together contributions to one round, to merge them on their way, and here "
                "each is applied by itself, as it comes",
                f"write overlay: {kinds(OVERLAYS, lambda each: each.routes)} with 'merge: exact', "
                f"'{OVERLAYS.default}', or an algorithm that waits for all, such as 'sync: {SYNC.default}'",
            )
        elif getattr(overlay.options, "merge", "") == "sum":
            yield Violation(
                ("overlay", tier),
                "'merge: sum' adds up on the way, and here each contribution is applied by itself, as it comes",
                "write 'merge: exact'",
            )


def summing_needs_dense_payloads(scenario: Scenario) -> Found:
    for tier in TIERS:
        merge = getattr(getattr(scenario.overlay, tier).options, "merge", "")
        if merge == "sum" and not getattr(scenario.codec, tier).declared.dense:
            yield Violation(
                ("overlay", tier),
                "'merge: sum' adds up on the way, and a sum of this codec's payloads is not one of its payloads",
                f"write 'merge: exact', or codec: {kinds(CODECS, lambda codec: codec.dense)}",
            )


def blocks_go_straight(scenario: Scenario) -> Found:
    if scenario.order.declared.best_effort and scenario.overlay.tier2.declared.relays:
        yield Violation(
            ("overlay", "tier2"),
            "blocks go straight to the global servers, some of them unreliably, and cannot be merged on the way",
            f"write 'overlay: {{tier1: …, tier2: {OVERLAYS.default}}}'",
        )


def blocks_are_cut_anywhere(scenario: Scenario) -> Found:
    if scenario.order.declared.best_effort and not scenario.codec.tier2.declared.dense:
        dense = CODECS.where(lambda codec: codec.dense)
        yield Violation(
            ("order",),
            f"'{scenario.order.kind}' loses blocks that have contributed little so far. The payloads of this codec on "
            "tier 2 hold what it has chosen anew in each round: a block of them has no past, and what it loses is lost "
            "for good, as the codec's residual has given it up",
            f"write 'codec: {{tier1: …, tier2: {dense[0]}}}'" + "".join(f" or 'tier2: {kind}'" for kind in dense[1:]),
        )


def models_lose_no_blocks(scenario: Scenario) -> Found:
    order, pushes_models = scenario.order, pushed(scenario) is Contribution.MODEL
    if order.declared.best_effort and pushes_models and not order.declared.repairs_losses(order.options):
        yield Violation(
            ("order",),
            "here models travel up, not gradients: a block that is lost would set parameters to zero",
            "write 'late: retransmit' and 'code: exact'",
        )
